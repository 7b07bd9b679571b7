"""The application of Ray Serve: an ingress, and replicas of an engine."""

from __future__ import annotations

__all__ = ("app", "build_app")

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Final

from aiomlc.config import EngineConfig, Mode
from aiomlc.errors import BadRequestError
from aiomlc.integrations.frameworks import framework
from aiomlc.ray.autoscaling import LoadPolicy
from aiomlc.ray.client import ReplicaClient
from aiomlc.ray.ingress import Ingress
from aiomlc.ray.options import RayOptions
from aiomlc.ray.replica import Replica
from aiomlc.serve.options import ServerOptions

_REPLICAS: Final = "Replica"  # The name of the deployment.
_MODES = ("local", "interactive", "server")


def build_app(
    model: str | None = None,
    *,
    mode: Mode = "local",
    engine_config: EngineConfig | None = None,
    options: RayOptions | None = None,
    server_options: ServerOptions | None = None,
) -> Any:  # noqa: ANN401 - Ray need not be installed.
    """Return an application of Ray Serve that serves a model over OpenAI's HTTP API:

        serve.run(build_app("HF://Qwen/Qwen3-0.6B", options=RayOptions(num_replicas=2)))

    Each replica is a process with an engine. An ingress receives the requests, and streams the
    answers of replicas, with the paths and errors of `create_app`. Deploying the application again
    with other arguments is a rolling update: Ray Serve stops a replica when its running requests
    have ended.

    Args:
        model: The model, as `AsyncMLCEngine` takes it, on every machine; None is the bundled one.
        mode: The preset of default sizes of an engine.
        engine_config: Further settings of the engines.
        options: The number of replicas, routing and autoscaling.
        server_options: The options of the HTTP application, whose limits on requests are those of
            a replica.

    Returns:
        A `ray.serve.Application`.

    Raises:
        MissingPackageError: If Ray Serve is not installed.
    """
    with framework("ray", "ray"):
        serve = import_module("ray.serve")

    options = options or RayOptions()
    server_options = server_options or ServerOptions()
    replicas = serve.deployment(Replica, name=_REPLICAS).options(**_replica_settings(options))
    bound = replicas.bind(
        model,
        mode,
        engine_config,
        server_options,
        max(1, int(options.num_cpus)),
        options.batch_interval,
    )
    max_retries = options.max_retries

    def make_ingress() -> Ingress:
        # In the process of the ingress.
        handle = serve.get_deployment_handle(_REPLICAS).options(stream=True)
        return Ingress(ReplicaClient(handle.stream.remote, max_retries=max_retries), server_options)

    ingress = serve.deployment(serve.ingress(make_ingress)(), name="Ingress").options(
        num_replicas=options.num_ingress_replicas,
        max_ongoing_requests=server_options.max_requests,
        graceful_shutdown_timeout_s=options.drain_timeout,
        ray_actor_options={"num_cpus": 0},
    )
    return ingress.bind(bound)


def app(arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - Ray need not be installed.
    """Return the application that the arguments of `serve run` describe:

        serve run aiomlc.ray:app model=HF://Qwen/Qwen3-0.6B num_replicas=2

    Args:
        arguments: `model`, `mode`, and the fields of `RayOptions`; values may be texts.

    Raises:
        BadRequestError: If an argument is unknown or invalid; `param` names it.
        MissingPackageError: If Ray Serve is not installed.
    """
    rest = dict(arguments)
    model = rest.pop("model", None)
    mode = rest.pop("mode", "local")
    if mode not in _MODES:
        raise BadRequestError(f"mode: must be one of {_MODES}, got {mode!r}", param="mode")

    return build_app(model, mode=mode, options=_parse_options(rest))


def _parse_options(arguments: Mapping[str, Any]) -> RayOptions:
    types = {field.name: str(field.type) for field in fields(RayOptions)}
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in types:
            names = ", ".join(("model", "mode", *types))
            raise BadRequestError(f"{name}: is not an argument; known: {names}", param=name)

        values[name] = _parse_value(name, types[name], value)

    return RayOptions(**values)


def _parse_value(name: str, type_name: str, value: object) -> object:
    """Return the value of an argument, which may be text."""
    text = str(value)
    if "float" not in type_name and "int" not in type_name:
        return text

    expected = "a number" if "float" in type_name else "an integer"
    try:
        return float(text) if "float" in type_name else int(text)
    except ValueError:
        raise BadRequestError(f"{name}: must be {expected}, got {value!r}", param=name) from None


def _replica_settings(options: RayOptions) -> dict[str, Any]:
    """Return the options of the deployment of replicas."""
    settings: dict[str, Any] = {
        "max_ongoing_requests": options.max_ongoing_requests,
        "max_queued_requests": options.max_queued_requests,
        "graceful_shutdown_timeout_s": options.drain_timeout,
        "ray_actor_options": {"num_cpus": options.num_cpus},
    }
    config = import_module("ray.serve.config")
    if options.routing == "prefix":
        settings["request_router_config"] = config.RequestRouterConfig(
            request_router_class="aiomlc.ray.router.PrefixRouter",
            request_router_kwargs={"max_imbalance": options.max_imbalance},
        )

    if options.max_replicas is None:
        settings["num_replicas"] = options.num_replicas
    else:
        targets = {
            "target_requests": options.target_requests,
            "target_kv_usage": options.target_kv_usage,
        }
        settings["autoscaling_config"] = config.AutoscalingConfig(
            min_replicas=options.num_replicas,
            max_replicas=options.max_replicas,
            upscale_delay_s=options.upscale_delay,
            downscale_delay_s=options.downscale_delay,
            policy=config.AutoscalingPolicy(policy_function=LoadPolicy, policy_kwargs=targets),
        )

    return settings
