"""A fixed piece of Python to be scored: ordinary code, some of it odd, and words."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edge:
    """A road between two towns."""

    start: str
    end: str
    length: float = 1.0


@dataclass
class Graph:
    edges: dict[str, list[Edge]] = field(default_factory=lambda: defaultdict(list))

    def add(self, start: str, end: str, length: float) -> None:
        if length < 0:
            raise ValueError(f"a road cannot be {length} km long")
        self.edges[start].append(Edge(start, end, length))
        self.edges[end].append(Edge(end, start, length))

    def shortest_path(self, start: str, end: str) -> tuple[float, list[str]]:
        """Dijkstra's algorithm; raises KeyError where there is no way."""
        queue: list[tuple[float, str, list[str]]] = [(0.0, start, [start])]
        seen: set[str] = set()
        while queue:
            distance, town, path = heapq.heappop(queue)
            if town == end:
                return distance, path
            if town in seen:
                continue
            seen.add(town)
            for edge in self.edges[town]:
                if edge.end not in seen:
                    heapq.heappush(queue, (distance + edge.length, edge.end, [*path, edge.end]))
        raise KeyError(f"no way from {start} to {end}")


def word_frequencies(text: str, *, least: int = 2) -> list[tuple[str, int]]:
    """Words that occur `least` times or more, most frequent first."""
    counts = Counter(word.strip(".,;:!?").lower() for word in text.split())
    return [(word, count) for word, count in counts.most_common() if count >= least]


def binary_search(values: list[int], wanted: int) -> int | None:
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == wanted:
            return middle
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return None


# Le fleuve coule vers la mer. Der Fluss fließt ins Meer. 川は海へ流れる。 Река течёт к морю.
RIVERS = {"Danube": 2850, "Rhine": 1233, "Volga": 3530, "Seine": 777, "Loire": 1006}


def main() -> None:
    graph = Graph()
    graph.add("Passau", "Linz", 90)
    graph.add("Linz", "Vienna", 184.5)
    print(graph.shortest_path("Passau", "Vienna"))
    print(word_frequencies("the river and the sea and the river"))
    print(sorted(RIVERS, key=RIVERS.__getitem__, reverse=True)[:3])
    assert binary_search([1, 3, 5, 7, 11], 7) == 3


if __name__ == "__main__":
    main()
