"""Options, hooks and fixtures that the whole suite shares."""

from __future__ import annotations

import functools
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import HealthCheck, settings

from poot.core.graph import Graph
from poot.lowering.device_info import DeviceInfo
from poot.lowering.plan.planner import make_program
from poot.lowering.program import Dispatch, Kernel, Program
from poot.lowering.spirv.builder import KernelBuilder
from poot.vulkan.choice import OVERRIDE
from poot.vulkan.context import Context, ContextRecorder
from poot.vulkan.emit import Emitter
from poot.vulkan.executable import Executable
from poot.vulkan.races import check_races
from poot.vulkan.tuning_store import TuningStore
from tests.emitted_commands import check_emitted, check_steps, watch
from tests.spirv_val import fault
from tests.wide_types import check_wide_types

# JAX is the second opinion, on the CPU and in one thread pool of its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
LAVAPIPE = "llvmpipe"
_VALIDATION_LOG = pytest.StashKey[Path]()
# Launches of kernels by the name of the driver that ran them.
_DISPATCHES = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("poot")
    group.addoption(
        "--lavapipe",
        action="store_true",
        help="fail unless Mesa's CPU driver is there and ran kernels",
    )
    group.addoption(
        "--validation",
        action="store_true",
        help="run under Vulkan's validation layers; a message fails the test it is in",
    )
    group.addoption(
        "--sweep-points",
        default=1 << 16,
        type=int,
        help="how many points of each function are compared with its true values",
    )
    group.addoption(
        "--programs",
        default=24,
        type=int,
        help="how many random programs are run",
    )
    group.addoption(
        "--programs-seed",
        default=0,
        type=int,
        help="the seed of the first hundred random programs",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_DISPATCHES] = Counter()
    if config.getoption("--lavapipe"):
        os.environ[OVERRIDE] = LAVAPIPE
    if config.getoption("--validation"):
        config.stash[_VALIDATION_LOG] = _enable_validation()


def _enable_validation() -> Path:
    """Have the Vulkan loader insert the layers, before anything makes an instance."""
    folder = Path(tempfile.mkdtemp(prefix="poot-validation-"))
    log = folder / "messages.txt"
    (folder / "vk_layer_settings.txt").write_text(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\n"
        "khronos_validation.report_flags = error,warn,perf\n"
        f"khronos_validation.log_filename = {log}\n"
    )
    os.environ["VK_INSTANCE_LAYERS"] = VALIDATION_LAYER
    os.environ["VK_LAYER_SETTINGS_PATH"] = str(folder)
    return log


@pytest.fixture(autouse=True)
def _no_validation_message(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test in which a validation layer says something."""
    log = request.config.stash.get(_VALIDATION_LOG, None)
    before = log.stat().st_size if log and log.exists() else 0
    yield
    if log and log.exists() and log.stat().st_size > before:
        message = log.read_bytes()[before:].decode()
        pytest.fail(f"Vulkan's validation layers say:\n{message}", pytrace=False)


@pytest.fixture(autouse=True, scope="module")
def _what_jax_compiled_goes() -> Iterator[None]:
    """Give back, with the memory, the time that collecting garbage takes of it."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def _spirv_val_sees_every_module() -> Iterator[None]:
    """Fail where a kernel is finished whose module spirv-val refuses."""
    finish = KernelBuilder.finish

    @functools.wraps(finish)
    def checked(self: KernelBuilder, schedule: str = "") -> Kernel:
        kernel = finish(self, schedule)
        found = fault(kernel.words)
        assert found is None, f"spirv-val on kernel {kernel.name}: {found}"
        return kernel

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KernelBuilder, "finish", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_wide_types_without_wide_dtypes() -> Iterator[None]:
    """Fail where a kernel asks for 64-bit types that its graph knows nothing of."""

    @functools.wraps(make_program)
    def checked(graph: Graph, info: DeviceInfo, *, generic: bool = False) -> Program:
        program = make_program(graph, info, generic=generic)
        check_wide_types(graph, program)
        return program

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poot.lowering.compile.make_program", checked)
        patch.setattr("tests.kernel_harness.make_program", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_tuned_schedules() -> Iterator[None]:
    """Whatever was tuned on this machine: tests go by what planning chooses."""

    def empty(folder: object, identity: bytes) -> TuningStore:
        return TuningStore(None, identity)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poot.vulkan.device.TuningStore", empty)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_program_races() -> Iterator[None]:
    """Fail where a program is made ready whose recorded commands may race."""
    start = Executable.__init__

    @functools.wraps(start)
    def checked(self: Executable, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        check_races(self.commands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executable, "__init__", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _vulkan_is_told_what_was_recorded() -> Iterator[None]:
    """Fail where the calls that record a program are other ones than its commands."""
    record = ContextRecorder.record

    @functools.wraps(record)
    def watched(
        self: ContextRecorder, context: Context, emitters: Sequence[Emitter]
    ) -> None:
        told = watch(emitters)
        record(self, context, emitters)
        check_emitted(self, context, [each.calls for each in told])
        handles = [emitter._target for emitter in emitters]
        check_steps(self._commands.steps, context.steps, handles)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContextRecorder, "record", watched)
        yield


# --- what ran where ---------------------------------------------------------


@pytest.fixture(autouse=True, scope="session")
def _dispatches_are_counted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Count the launches of every executable's calls, by driver."""
    call = Executable.call
    counts = request.config.stash[_DISPATCHES]

    @functools.wraps(call)
    def counted(self: Executable, *arguments: Any) -> Any:
        result = call(self, *arguments)
        commands = self.commands.commands
        launches = sum(isinstance(command, Dispatch) for command in commands)
        counts[self.device.info.driver_name] += launches
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executable, "call", counted)
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the counts of a worker that has ended."""
    node.config.stash[_DISPATCHES].update(node.workeroutput.get("dispatches", {}))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["dispatches"] = dict(config.stash[_DISPATCHES])
    elif config.getoption("--lavapipe") and not config.stash[_DISPATCHES][LAVAPIPE]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash[_DISPATCHES]
    told = ", ".join(f"{count} by {driver}" for driver, count in counts.items())
    terminalreporter.write_line(f"kernels launched: {told or 'none'}")
    if config.getoption("--lavapipe") and not counts[LAVAPIPE]:
        terminalreporter.write_line(f"FAILED: {LAVAPIPE} ran no kernel", red=True)
