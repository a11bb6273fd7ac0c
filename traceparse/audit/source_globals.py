"""Source rules on what a solution changes outside itself: numerics switches, functions of others, L2 policy, streams, the grader.

Changes of the process reach the reference and the timer, which run in the same process under most decks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from traceparse.audit.pysource import Module, constant_text
from traceparse.audit.rule import Finding, Severity, found, rule
from traceparse.audit.sources import Bundle

NUMERICS = rule(
    "global_numerics",
    "globals",
    "solution",
    "flag",
    "the solution changes a numerics switch of the whole process, so the reference's results too",
)
PATCHED = rule(
    "patched_library", "globals", "solution", "hack", "the solution replaces a function of a library at run time"
)
SUBCLASS = rule(
    "tensor_subclass",
    "globals",
    "solution",
    "hack",
    "a subclass of Tensor intercepts operations: its values need not be computed when the timer stops",
)
PERSISTING = rule(
    "persisting_l2",
    "globals",
    "solution",
    "hack",
    "data are set aside in persisting L2, where the benchmark's flush does not reach them",
)
EVICTION = rule(
    "l2_eviction_hint",
    "globals",
    "solution",
    "flag",
    "loads are marked to stay in L2; between timed calls this works against a cold-cache flush",
)
SIDE_STREAM = rule(
    "side_stream",
    "globals",
    "solution",
    "flag",
    "work is put on a stream of its own that nothing on the hot path joins: events on the main stream miss it",
)
BACKGROUND = rule(
    "background_work", "globals", "solution", "flag", "the hot path starts threads or processes, or sleeps"
)
GRADER_FILE = rule(
    "grader_file_in_source",
    "globals",
    "solution",
    "hack",
    "the solution writes to the grader's files or switches its checks off",
)
MEMORY = rule(
    "foreign_memory",
    "globals",
    "solution",
    "hack",
    "the solution reads or writes the memory of the process by address, outside its tensors",
)

_NUMERIC = re.compile(
    r"^torch\.backends\.(?:cuda\.matmul|cudnn|mkldnn|cpu|cuda)\.(?:allow_\w+|fp32_precision|conv\.\w+|rnn\.\w+|"
    r"deterministic|benchmark|enabled)|"
    r"^torch\.backends\.(?:fp32_precision|cudnn\.\w+)$"
)
_NUMERIC_CALL = re.compile(
    r"^torch\.(?:set_float32_matmul_precision|use_deterministic_algorithms|set_default_dtype|set_flush_denormal|"
    r"set_deterministic_debug_mode)$|"
    r"^torch\.backends\.cuda\.(?:enable_\w+|preferred_\w+)$|^torch\.set_default_(?:device|tensor_type)$"
)
_C_NUMERIC = re.compile(r"globalContext\(\)\.set(?:Allow|Float32|Deterministic|Benchmark)\w*\s*\(")
_TIMERS = re.compile(
    r"^(?:torch\.cuda\.(?:Event|synchronize|Stream|current_stream)|torch\.(?:allclose|isclose|equal|testing|Tensor)|"
    r"time\.|builtins\.|triton\.testing|numpy\.(?:allclose|testing)|torch\.utils\.benchmark|sys\.modules|"
    r"sys\.stdout|math\.|statistics\.)"
)
_LIBRARIES = (
    "torch",
    "time",
    "builtins",
    "triton",
    "numpy",
    "sys",
    "math",
    "statistics",
    "os",
    "gc",
    "inspect",
    "random",
)
# A cache of the compiler's or an option of its own is not the grader's business.
_HARMLESS = re.compile(
    r"^torch\.(?:_inductor|_dynamo|classes|ops)|^triton\.(?:knobs|runtime|set_allocator|compiler)|^sys\.(?:path|"
    r"dont_write|setrecursion|modules$)|"
    r"^os\.environ|^torch\.backends|^torch\.utils\.cpp_extension|^torch\.autograd\.grad_mode"
)
_PERSIST = re.compile(
    r"cudaLimitPersistingL2CacheSize\s*,(?!\s*0\s*\))|cudaAccessPropertyPersisting|CU_LIMIT_PERSISTING_L2_CACHE_SIZE\s*,(?!\s*0\s*\))|"
    r"CU_ACCESS_PROPERTY_PERSISTING|"
    r"hitProp\s*=\s*\w*[Pp]ersist|access_property::persisting"
)
_EVICT = re.compile(r"evict_last|EVICT_LAST|L2::evict_last|createpolicy\.\w+\.L2::evict_last|EvictLast")
_GRADER_NAMES = re.compile(
    r"(?:^|/)(?:check|benchmark|reference|shapes|sota)\.py$|(?:^|/)problem\.yaml$|(?:^|/)numeric_stress\.py$"
)
_GRADER_SWITCH = re.compile(r"NUMERIC_STRESS|PROPERTY_STRESS|SKIP_CHECK")
_WRITES = frozenset(
    "write_text write_bytes unlink rename replace copy copyfile copy2 move symlink chmod remove truncate".split()  # noqa: SIM905
)
_MEMORY = re.compile(
    r"/proc/(?:self|\d+|\{\w+\})/(?:mem|maps)|process_vm_(?:read|write)v|ctypes\.(?:memmove|memset|from_address|"
    r"string_at)$"
)


def check(bundle: Bundle, bench: str | None = None) -> Iterator[Finding]:
    """Findings on what the solution changes or touches outside itself.

    Args:
        bundle: The files.
        bench: The deck. One timed call of the decode decks (``mega``, ``cuda``) is many steps, between which a cache may
            stay warm; the hard deck's is one, after a flush.
    """
    for module in bundle.program.modules:
        yield from _assignments(module)
        yield from _classes(module)
        yield from _files(module)
    yield from _c_text(bundle, "flag" if bench in ("mega", "cuda") else "hack")
    yield from _streams(bundle)


def _assignments(module: Module) -> Iterator[Finding]:
    for node in module.nodes:
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = module.dotted(target) if isinstance(target, ast.Attribute) else None
                if name is None and isinstance(target, ast.Subscript):
                    name = module.dotted(target.value)
                    name = name if name in ("sys.modules", "os.environ") else None
                    if name == "os.environ":
                        yield from _switch(module, node, constant_text(target.slice))
                if name and not name.startswith(("self.", "cls.")):
                    yield from _changed(module, node, name)
        elif isinstance(node, ast.Call):
            name = module.dotted(node.func) or ""
            if _NUMERIC_CALL.match(name):
                yield found(NUMERICS, module.line(line), detail=name, path=module.path, line=line)
            elif name == "setattr" and len(node.args) == 3:
                base, attribute = module.dotted(node.args[0]), constant_text(node.args[1])
                if base and attribute:
                    yield from _changed(module, node, f"{base}.{attribute}")
            elif name in ("os.environ.setdefault", "os.putenv", "os.environ.pop") and node.args:
                yield from _switch(module, node, constant_text(node.args[0]))


def _switch(module: Module, node: ast.AST, key: str | None) -> Iterator[Finding]:
    if key and _GRADER_SWITCH.search(key):
        line = getattr(node, "lineno", 1)
        yield found(GRADER_FILE, module.line(line), detail=key, path=module.path, line=line)


def _changed(module: Module, node: ast.AST, name: str) -> Iterator[Finding]:
    line = getattr(node, "lineno", 1)
    root = name.split(".", 1)[0]
    if _NUMERIC.match(name):
        yield found(NUMERICS, module.line(line), detail=name, path=module.path, line=line)
    elif root in _LIBRARIES and "." in name and not _HARMLESS.match(name):
        severity: Severity = "hack" if _TIMERS.match(name) else "flag"
        yield found(PATCHED, module.line(line), severity=severity, detail=name, path=module.path, line=line)


def _classes(module: Module) -> Iterator[Finding]:
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and any(module.dotted(base) == "torch.Tensor" for base in node.bases):
            hooks = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            caught = hooks & {"__torch_function__", "__torch_dispatch__"}
            severity: Severity = "hack" if caught else "flag"
            yield found(
                SUBCLASS,
                module.line(node.lineno),
                severity=severity,
                detail=node.name,
                path=module.path,
                line=node.lineno,
            )


def _files(module: Module) -> Iterator[Finding]:
    for node in module.nodes:
        if not isinstance(node, ast.Call):
            path = constant_text(node) or ""
            if len(path) < 80 and path.startswith("/proc/") and _MEMORY.search(path):
                line = getattr(node, "lineno", 1)
                yield found(MEMORY, module.line(line), detail=path, path=module.path, line=line)
            continue
        called = module.dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        line = node.lineno
        if _MEMORY.search(called):
            yield found(MEMORY, module.line(line), severity="flag", detail=called, path=module.path, line=line)
        strings = [text for part in ast.walk(node) if (text := constant_text(part)) is not None and len(text) < 200]
        named = [text for text in strings if _GRADER_NAMES.search(text)]
        if not named:
            continue
        opened = called in ("open", "io.open") and any(
            re.fullmatch(r"[rwab+t]*[wa+x][rwab+t]*", text) for text in strings
        )
        if opened or called.rsplit(".", 1)[-1] in _WRITES:
            yield found(GRADER_FILE, module.line(line), detail=named[0], path=module.path, line=line)


def _c_text(bundle: Bundle, persisting: Severity) -> Iterator[Finding]:
    for unit, hit in bundle.find_c(_C_NUMERIC, hot=False):
        yield found(NUMERICS, hit.text, path=unit.path, line=hit.line)
    for unit, hit in bundle.find_c(_PERSIST, hot=False):
        yield found(PERSISTING, hit.text, severity=persisting, path=unit.path, line=hit.line)
        break
    for unit, hit in bundle.find_c(_EVICT, hot=False, strings=True):
        yield found(EVICTION, hit.text, path=unit.path, line=hit.line)
        break
    for module, node in bundle.program.hot_nodes:
        text = constant_text(node)
        if text is not None and len(text) < 60 and _EVICT.search(text):
            line = getattr(node, "lineno", 1)
            yield found(EVICTION, module.line(line), path=module.path, line=line)
            break


def _streams(bundle: Bundle) -> Iterator[Finding]:
    hot = bundle.program.hot_nodes
    calls = [(m, n, m.dotted(n.func) or str(getattr(n.func, "attr", ""))) for m, n in hot if isinstance(n, ast.Call)]
    joined = any(
        name.rsplit(".", 1)[-1] in ("wait_stream", "synchronize", "wait_event", "wait") for _, _, name in calls
    )
    for module, node, name in calls:
        if name in ("torch.cuda.Stream", "torch.cuda.ExternalStream") and not joined:
            yield found(SIDE_STREAM, module.line(node.lineno), path=module.path, line=node.lineno)
        elif name in ("threading.Thread", "threading.Timer", "os.fork", "time.sleep", "asyncio.run") or name.startswith(
            ("concurrent.futures.", "multiprocessing.")
        ):
            yield found(BACKGROUND, module.line(node.lineno), detail=name, path=module.path, line=node.lineno)
