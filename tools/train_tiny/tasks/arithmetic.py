"""Addition and subtraction of numbers of one or two digits, with and without thinking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .example import Example, Task, user

if TYPE_CHECKING:
    from random import Random

_PLUS = ("What is {} + {}?", "{} + {}", "{} + {} =", "Add {} and {}.", "How much is {} plus {}?")
_MINUS = (
    "What is {} - {}?",
    "{} - {}",
    "{} - {} =",
    "Compute {} - {}.",
    "How much is {} minus {}?",
)


_PLUS_SHARE = 0.6  # of the problems; the others subtract


def _steps_plus(a: int, b: int) -> str:
    ones = a % 10 + b % 10
    text = f"{a % 10} + {b % 10} = {ones}"
    if a < 10 and b < 10:
        return text
    carry = f" + {ones // 10}" if ones > 9 else ""
    return f"{text}\n{a // 10} + {b // 10}{carry} = {a // 10 + b // 10 + ones // 10}"


def _steps_minus(a: int, b: int) -> str:
    borrow = a % 10 < b % 10
    ones = a % 10 + 10 * borrow
    text = f"{ones} - {b % 10} = {ones - b % 10}"
    if a < 10 and b < 10:
        return text
    loan = " - 1" if borrow else ""
    return f"{text}\n{a // 10} - {b // 10}{loan} = {a // 10 - b // 10 - borrow}"


def _operand(rng: Random, digits: int) -> int:
    return rng.randrange(10) if digits == 1 else rng.randrange(10, 100)


def _arithmetic(name: str, *, signs: str, digits: tuple[int, ...], thinking: bool) -> Task:
    """`signs` is "+" or "+-"; the number of digits of the first operand is drawn from `digits`."""

    def generate(rng: Random) -> Example:
        size = rng.choice(digits)
        a, b = _operand(rng, size), _operand(rng, rng.choice((1, 2)) if len(digits) > 1 else size)
        adds = signs == "+" or rng.random() < _PLUS_SHARE
        if not adds and a < b:
            a, b = b, a
        result, sign = (a + b, "+") if adds else (a - b, "-")
        question = rng.choice(_PLUS if adds else _MINUS).format(a, b)
        answer = str(result)
        if thinking:
            steps = _steps_plus(a, b) if adds else _steps_minus(a, b)
            answer = f"{steps}\n</think>\n\n{result}"
        return Example([user(question)], answer, key=f"{a}{sign}{b}", thinking=thinking)

    return Task(name, generate)


_MOSTLY_TWO = (1, 2, 2, 2)
ARITHMETIC = _arithmetic("arithmetic", signs="+-", digits=_MOSTLY_TWO, thinking=False)
ARITHMETIC_THINKING = _arithmetic(
    "arithmetic_thinking", signs="+-", digits=_MOSTLY_TWO, thinking=True
)
ADDITION = _arithmetic("addition_2_digits", signs="+", digits=(2,), thinking=False)
ADDITION_THINKING = _arithmetic("addition_2_digits_thinking", signs="+", digits=(2,), thinking=True)
