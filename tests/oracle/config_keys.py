"""The keys that GPT-NeoX declares, with their defaults: config_keys.py GPT_NEOX_CHECKOUT > neox_keys.txt

Reads the dataclasses of megatron/neox_arguments; one line for each key: name = default, as Python.
The committed list is of commit ea7aefd8 (May 2026).
"""
import ast
import pathlib
import sys

checkout = pathlib.Path(sys.argv[1])
keys = {}
for name in ("neox_args.py", "deepspeed_args.py"):
    source = (checkout / "megatron" / "neox_arguments" / name).read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign):
                    keys[field.target.id] = ast.unparse(field.value)
for key, default in keys.items():
    print(f"{key} = {default}")
