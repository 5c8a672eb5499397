"""The body of every answer that is an error, as OpenAI has it."""

from __future__ import annotations

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    """The field that was wrong."""
    code: str | None


class Error(BaseModel):
    error: ErrorDetail
