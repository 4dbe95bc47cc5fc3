# Validates requests with the parameter types of OpenAI's and Anthropic's SDKs.
#
# Reads lines {"api": …, "body": …}. Writes for each the errors, and the paths of the objects whose unknown keys are not noticed.
import copy, json, sys, typing
import pydantic, pydantic_core, typing_extensions

# Pydantic reads an Iterable lazily, and would not validate its items. The type aliases of the SDKs are evaluated on import.
typing.Iterable = typing.List

import anthropic
from anthropic.types import MessageCreateParams
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses.response_create_params import ResponseCreateParams

# Some types also accept blocks of a response, which allow unknown keys. A request has none.
anthropic.BaseModel.__get_pydantic_core_schema__ = classmethod(
    lambda cls, source, handler: pydantic_core.core_schema.is_instance_schema(cls)
)

STRICT = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
for name, module in list(sys.modules.items()):
    if name.startswith(("openai.types", "anthropic.types")):
        for value in vars(module).values():
            if typing_extensions.is_typeddict(value):
                value.__pydantic_config__ = STRICT

ADAPTERS = {
    "chat": pydantic.TypeAdapter(CompletionCreateParams),
    "responses": pydantic.TypeAdapter(ResponseCreateParams),
    "messages": pydantic.TypeAdapter(MessageCreateParams),
}


def without_exceptions(api, body):
    """Removes or adds what the SDKs' types refuse or require, unlike the APIs."""
    body = copy.deepcopy(body)
    if api == "chat":
        for message in body["messages"]:
            # OpenAI ignores the name of a result. Other providers need it.
            if message["role"] == "tool":
                message.pop("name", None)
    if api == "messages":
        # Models before Claude Opus 4.7 still take these parameters. The SDK no longer has them.
        for name in ("temperature", "top_p", "top_k"):
            body.pop(name, None)
    if api == "responses":
        for item in body["input"]:
            # Text of another model has no id, and Azure refuses a status. Codex sends neither.
            if item["type"] == "message" and item["role"] == "assistant":
                item.setdefault("id", "msg_1")
                item.setdefault("status", "completed")
    return body


def errors(api, body):
    try:
        ADAPTERS[api].validate_python(body, strict=True)
        return []
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]


def paths(value, path=()):
    if isinstance(value, dict):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def is_unchecked(api, body, path):
    broken = copy.deepcopy(body)
    target = broken
    for key in path:
        target = target[key]
    target["unknown_key"] = 1
    return not errors(api, broken)


def unchecked_paths(api, body, tried):
    """Tries one object of each form, because each takes a validation of the whole body."""
    for path in paths(body):
        target = body
        for key in path:
            target = target[key]
        form = (api, *(key for key in path if isinstance(key, str)), target.get("type"), target.get("role"), *target)
        if form not in tried and is_unchecked(api, body, path):
            yield path
        tried.add(form)


tried = set()
for line in sys.stdin:
    request = json.loads(line)
    api = request["api"]
    body = without_exceptions(api, request["body"])
    unchecked = list(unchecked_paths(api, body, tried))
    print(json.dumps({"errors": errors(api, body), "unchecked": unchecked}))
