"""Kernels with a seeded fault: a copy of their file with one text in the place of another."""

import importlib.util
from pathlib import Path

import evalgrad._triton

FOLDER = Path(evalgrad._triton.__file__).parent


def with_fault(folder, system, right, wrong):
    """The module of a system from a copy in `folder`, with the fault."""
    text = (FOLDER / f"{system}.py").read_text()
    assert text.count(right) == 1, f"{system}.py has {text.count(right)} times {right!r}"
    path = folder / f"{system}_with_fault.py"
    path.write_text(text.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    registered = dict(evalgrad._triton._implementations)
    spec.loader.exec_module(module)
    evalgrad._triton._implementations.update(registered)  # its own stays out of the table
    return module


def put_in(monkeypatch, module, systems):
    """Let the kernels of these files call those of `module` instead of their own of that name."""
    for name, kernel in vars(module).items():
        if getattr(getattr(kernel, "fn", None), "__module__", "") == module.__name__:
            for system in systems:
                owner = importlib.import_module(f"evalgrad._triton.{system}")
                if hasattr(owner, name):
                    monkeypatch.setattr(owner, name, kernel)
