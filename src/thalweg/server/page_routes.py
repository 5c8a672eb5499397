"""The page at `/`: files as they are, nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

FOLDER = Path(__file__).parent / "page"
POLICY = "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"


def add_page(app: FastAPI) -> None:
    async def page(request: Request) -> Response:
        headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
        return FileResponse(FOLDER / "index.html", headers=headers)

    app.add_route("/", page, methods=["GET"], include_in_schema=False)
    app.mount("/page", StaticFiles(directory=FOLDER))
