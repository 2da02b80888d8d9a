"""The pages, as an ASGI application: HTML from templates, and events when something has changed.

Every page can be read without scripts. Forms that change something need the operator's session and
its CSRF token, and are taken from this site only.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, PackageLoader, select_autoescape
from starlette.exceptions import HTTPException as StarletteException

from tidegate_console.overview import Overview, attention
from tidegate_console.status_command import facts
from tidegate_console.web import page_values
from tidegate_console.web.overview_keeper import OverviewKeeper, OverviewReading
from tidegate_console.web.reading import Acting, Reading
from tidegate_console.web.sign_in import COOKIE, SESSION_S, Operators, Session
from tidegate_delta.errors import TidegateError
from tidegate_messages.published_records import TableRecord
from tidegate_runtime.clock import Clock
from tidegate_runtime.observability.logs import log_event
from tidegate_runtime.table_registry import find_table

VERSIONS: Final = 50
PROPOSALS: Final = 100
FORM_BYTES_MAX: Final = 64 * 1024
LOOK_S: Final = 1.0
"""How often the stream of events looks for a new reading."""
SLOW_SIGN_IN_S: Final = 1.0
"""How long a wrong token waits for its answer."""

_STATIC: Final = Path(__file__).with_name("static")
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_log = logging.getLogger(__name__)

Text = Annotated[str, Query(max_length=300)]


class Pages:
    """Renders pages of one installation."""

    def __init__(
        self, keeper: OverviewKeeper, reading: Reading, operators: Operators, clock: Clock
    ) -> None:
        self.keeper, self.reading, self.operators = keeper, reading, operators
        self._clock = clock
        environment = Environment(
            loader=PackageLoader("tidegate_console.web"),
            autoescape=select_autoescape(default=True),
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "size": page_values.size,
            "instant": page_values.instant,
            "age": lambda at_ms: page_values.age(at_ms, clock.now_ms()),
        }
        environment.globals["version_of"] = _version_of
        self._templates = Jinja2Templates(env=environment)

    def page(
        self, request: Request, template: str, status: int = HTTPStatus.OK, **values: Any
    ) -> HTMLResponse:
        """Return a page with what every page shows."""
        reading = self.keeper.newest
        overview = reading.overview
        findings = attention(overview) if overview else []
        return self._templates.TemplateResponse(
            request,
            f"{template}.html",
            {
                "reading": reading,
                "overview": overview,
                "attention": findings,
                "problems": sum(finding.level == "problem" for finding in findings),
                "now_ms": self._clock.now_ms(),
                "session": self.session(request),
                "may_sign_in": self.operators.may_sign_in,
                "here": _path_and_query(request),
                **values,
            },
            status_code=status,
        )

    def status_bar(self) -> str:
        """Return the line with the time and the number of problems, for an event."""
        reading = self.keeper.newest
        findings = attention(reading.overview) if reading.overview else []
        template = self._templates.get_template("status.html")
        return template.render(
            reading=reading,
            overview=reading.overview,
            problems=sum(finding.level == "problem" for finding in findings),
        )

    def session(self, request: Request) -> Session | None:
        """Return the operator's session, or None."""
        return self.operators.session(request.cookies.get(COOKIE))

    def overview(self) -> Overview:
        """Return the last overview. Raises: HTTPException, before the first one."""
        reading = self.keeper.newest
        if reading.overview is None:
            raise HTTPException(
                HTTPStatus.SERVICE_UNAVAILABLE, reading.problem or "Kafka is being read; look again"
            )
        return reading.overview

    def table(self, table: UUID) -> TableRecord:
        """Return a registered table. Raises: HTTPException."""
        record = self.overview().tables.get(table)
        if record is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"no table has the id {table}")
        return record


def console_app(pages: Pages, actions: Acting) -> FastAPI:
    """Return the application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.middleware("http")(_with_headers)
    app.add_exception_handler(TidegateError, partial(_show_error, pages))
    app.add_exception_handler(StarletteException, partial(_show_refusal, pages))
    _add_overviews(app, pages)
    _add_tables(app, pages)
    _add_proposals(app, pages)
    _add_events(app, pages)
    _add_sign_in(app, pages)
    _add_actions(app, pages, actions)
    return app


def _add_overviews(app: FastAPI, pages: Pages) -> None:
    @app.get("/")
    def overview(request: Request) -> Response:
        read = pages.overview()
        by_name = {record.name: table for table, record in read.tables.items()}
        return pages.page(request, "overview", facts=facts(read), by_name=by_name)

    @app.get("/streams")
    def streams(request: Request, q: Text = "", state: Text = "") -> Response:
        read = pages.overview()
        by_name = {record.name: record for record in read.tables.values()}
        order = {"stopped": 0, "behind": 1, "snapshot": 2, "not begun": 3, "up to date": 4}
        result = [
            (stream, by_name.get(stream.table))
            for stream in sorted(
                read.streams, key=lambda stream: (order[stream.state], stream.table)
            )
            if q.casefold() in stream.table.casefold() and (not state or stream.state == state)
        ]
        states: dict[str, int] = {}
        for stream in read.streams:
            states[stream.state] = states.get(stream.state, 0) + 1
        topics = read.topics
        return pages.page(
            request, "streams", streams=result, q=q, state=state, states=states, topics=topics
        )

    @app.get("/dead-letters")
    def dead_letters(request: Request) -> Response:
        return pages.page(request, "dead_letters", letters=pages.overview().letters)


def _add_tables(app: FastAPI, pages: Pages) -> None:
    reading = pages.reading

    @app.get("/tables")
    def tables(request: Request, q: Text = "", state: Text = "", page: int = 1) -> Response:
        rows = page_values.table_rows(pages.overview())
        result = page_values.table_page(rows, q, state, page)
        return pages.page(request, "tables", found=result, q=q, state=state)

    @app.get("/tables/{table}")
    def table(request: Request, table: UUID, done: Text = "") -> Response:
        record = pages.table(table)
        (row,) = [row for row in page_values.table_rows(pages.overview()) if row.record is record]
        return pages.page(request, "table", row=row, record=record, done=done)

    @app.get("/tables/{table}/history")
    def history(request: Request, table: UUID) -> Response:
        record = pages.table(table)
        entries = reading.history(record, VERSIONS)
        return pages.page(request, "table_history", record=record, entries=entries)

    @app.get("/tables/{table}/shape")
    def shape(request: Request, table: UUID) -> Response:
        record = pages.table(table)
        result = reading.shape(record)
        return pages.page(
            request, "table_shape", record=record, facts=result.facts, health=result.health
        )

    @app.get("/tables/{table}/ingest")
    def ingest(request: Request, table: UUID) -> Response:
        record = pages.table(table)
        positions = reading.positions(record)
        return pages.page(request, "table_ingest", record=record, positions=positions)

    @app.get("/tables/{table}/maintenance")
    def maintenance(request: Request, table: UUID) -> Response:
        record = pages.table(table)
        found = reading.maintenance(record)
        return pages.page(
            request, "table_maintenance", record=record, pause=found.pause, report=found.report
        )

    @app.get("/tables/{table}/holders")
    def holders(request: Request, table: UUID) -> Response:
        record = pages.table(table)
        return pages.page(request, "table_holders", record=record, claims=reading.claims(record))


def _add_proposals(app: FastAPI, pages: Pages) -> None:
    reading = pages.reading

    @app.get("/proposals")
    def proposals(
        request: Request, table: UUID | None = None, status: Text = "", id: Text = ""
    ) -> Response:
        if id.strip():
            return RedirectResponse(f"/proposals/{_proposal_id(id)}", HTTPStatus.SEE_OTHER)
        record = pages.table(table) if table is not None else None
        result = [
            proposal
            for proposal in reading.proposals(record, PROPOSALS)
            if not status or proposal.status == status
        ]
        return pages.page(
            request,
            "proposals",
            proposals=result,
            record=record,
            tables=pages.overview().tables,
            status_=status,
        )

    @app.get("/proposals/{proposal}")
    def proposal(request: Request, proposal: UUID, table: Text | None = None) -> Response:
        explanation = reading.explanation(proposal, table)
        root, tables = explanation.root, pages.overview().tables
        record = find_table(tables, root) if root is not None else None
        return pages.page(request, "proposal", explanation=explanation, record=record)


def _add_events(app: FastAPI, pages: Pages) -> None:
    @app.get("/events")
    async def events(request: Request) -> Response:
        async def stream() -> AsyncIterator[str]:
            last: OverviewReading | None = None
            yield "retry: 3000\n\n"
            while not await request.is_disconnected():
                newest = pages.keeper.newest
                if last is None or newest.number != last.number:
                    yield _event("status", pages.status_bar())
                if last is not None and newest.change != last.change:
                    yield _event("changed", str(newest.change))
                last = newest
                await asyncio.sleep(LOOK_S)

        return StreamingResponse(stream(), media_type="text/event-stream")


def _add_sign_in(app: FastAPI, pages: Pages) -> None:
    operators = pages.operators

    @app.get("/sign-in")
    def ask(request: Request) -> Response:
        return pages.page(request, "sign_in", is_wrong=False)

    @app.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        form = await _form(request)
        cookie = operators.sign_in(form.get("token", ""))
        if cookie is None:
            await asyncio.sleep(SLOW_SIGN_IN_S)
            return pages.page(request, "sign_in", HTTPStatus.FORBIDDEN, is_wrong=True)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    @app.post("/sign-out")
    async def sign_out(request: Request) -> Response:
        await _operators_form(pages, request)
        operators.sign_out(request.cookies.get(COOKIE))
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(COOKIE)
        return answer


def _add_actions(app: FastAPI, pages: Pages, actions: Acting) -> None:
    @app.post("/tables/{table}/{action}")
    async def act(request: Request, table: UUID, action: str) -> Response:
        form = await _operators_form(pages, request)
        record = pages.table(table)
        why = form.get("why", "").strip()
        steps: dict[str, Callable[[], str]] = {
            "halt": partial(actions.halt, record, why),
            "reopen": partial(actions.reopen, record),
            "retry": partial(actions.retry, record),
        }
        if action not in steps:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no action {action!r}")
        log_event(_log, "operator_action", action=action, table=record.name, why=why)
        done = await asyncio.to_thread(steps[action])
        await asyncio.to_thread(pages.keeper.read_now)
        address = request.url_for("table", table=str(table)).include_query_params(done=done)
        return RedirectResponse(f"{address.path}?{address.query}#content", HTTPStatus.SEE_OTHER)


async def _operators_form(pages: Pages, request: Request) -> dict[str, str]:
    """Return the fields of an operator's form. Raises: HTTPException, for anybody else's."""
    session = pages.session(request)
    if session is None:
        raise HTTPException(HTTPStatus.FORBIDDEN, "only operators may do this: sign in first")
    form = await _form(request)
    if form.get("csrf") != session.csrf:
        raise HTTPException(
            HTTPStatus.FORBIDDEN, "this form is not of a page of yours: open the page again"
        )
    return form


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form that this site sent. Raises: HTTPException."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(HTTPStatus.FORBIDDEN, "forms of other sites are not taken")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES_MAX:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the form is too large")
    fields = parse_qs(body.decode(errors="replace"), max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}


async def _with_headers(
    request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    response = await answer(request)
    response.headers.update(_HEADERS)
    is_static = request.url.path.startswith("/static/") and "v" in request.query_params
    response.headers["Cache-Control"] = "max-age=31536000, immutable" if is_static else "no-store"
    return response


def _show_error(pages: Pages, request: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError), "it is registered for these"
    status = {"retry": HTTPStatus.SERVICE_UNAVAILABLE, "fix": HTTPStatus.CONFLICT}.get(
        error.advice, HTTPStatus.BAD_GATEWAY
    )
    if error.error_class.endswith("NotFound"):
        status = HTTPStatus.NOT_FOUND
    return pages.page(request, "error", status, name=error.error_class, message=str(error))


def _show_refusal(pages: Pages, request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteException), "it is registered for these"
    name = HTTPStatus(error.status_code).phrase
    return pages.page(request, "error", error.status_code, name=name, message=str(error.detail))


def _proposal_id(text: str) -> UUID:
    try:
        return UUID(text.strip())
    except ValueError as error:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"{text.strip()!r} is no id of a proposal: it should be a UUID"
        ) from error


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: {name}\n{lines}\n"


def _path_and_query(request: Request) -> str:
    """Return the path and query of the page, for reading it again."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}"


def _version_of(name: str) -> str:
    """Return a digest of a static file, so that browsers load a new one after an upgrade."""
    return hashlib.sha256((_STATIC / name).read_bytes()).hexdigest()[:12]
