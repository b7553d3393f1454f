"""The OpenAPI document as a judge: every answer that a test gets is held against it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012


class Contract:
    """Knows for each operation what it may answer."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        resource = Resource.from_contents(document, default_specification=DRAFT202012)
        self._registry = Registry().with_resource("urn:api", resource)
        self._paths = [
            (re.compile(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(path))), path)
            for path in document["paths"]
        ]

    async def hold(self, response: httpx.Response) -> None:
        """A hook of the client: an answer that the document does not have fails the test."""
        operation = self._operation(response.request)
        if operation is None:
            assert response.status_code in (404, 405), response
            return
        documented = operation["responses"].get(str(response.status_code))
        assert documented is not None, f"{response.request.method} {response.url}: {response.status_code}"
        for name, header in documented.get("headers", {}).items():
            assert not header.get("required") or name in response.headers
        content = documented.get("content")
        await response.aread()
        if content is None:
            assert response.content == b""
            return
        media_type = response.headers["content-type"].partition(";")[0]
        assert media_type in content, f"{media_type} of {response.url}"
        if media_type != "application/x-ndjson" and media_type.endswith("json"):
            self._validate(content[media_type]["schema"], json.loads(response.content))

    def accepts(self, component: str, value: Any) -> bool:
        return bool(self._validator({"$ref": f"#/components/schemas/{component}"}).is_valid(value))

    def _operation(self, request: httpx.Request) -> Mapping[str, Any] | None:
        path = request.url.raw_path.partition(b"?")[0].decode()
        for pattern, template in self._paths:
            if pattern.fullmatch(path):
                found = self.document["paths"][template].get(request.method.lower())
                if found is not None:
                    return found  # type: ignore[no-any-return]
        return None

    def _validate(self, schema: Mapping[str, Any], value: Any) -> None:
        error = jsonschema.exceptions.best_match(self._validator(schema).iter_errors(value))
        assert error is None, f"{error.json_path}: {error.message}"

    def _validator(self, schema: Mapping[str, Any]) -> Any:
        text = json.dumps(schema).replace('"#/', '"urn:api#/')
        return jsonschema.Draft202012Validator(
            json.loads(text), registry=self._registry, format_checker=jsonschema.FormatChecker()
        )
