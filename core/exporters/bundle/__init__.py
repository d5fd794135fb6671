"""A run as one file: sent to a colleague, and opened again in another lab.

    RUN/bundle.json                what is in the file: each name with its size and hash
    RUN/config.yaml, schema.json, status.json, log.txt, import.json
    RUN/tables/pack.json, TABLE.parquet
    RUN/adapter/adapter_config.json, adapter_model.safetensors, made_with.json

An uncompressed zip of Parquet, JSON and safetensors; unpacked by hand, the folder is a packed run
(`core.store.packed`). It says nothing of the machine that made it. `write_bundle` makes one.

`open_bundle` takes one from anybody. A bundle is data, never code: nothing but these names is unpacked, every file is
checked and written anew by this lab, and the run is marked as from elsewhere, so that nothing starts or resumes it.
"""

from core.exporters.bundle.layout import BundleError
from core.exporters.bundle.open import Origin, open_bundle, origin
from core.exporters.bundle.write import bundle_name, write_bundle

__all__ = ["BundleError", "Origin", "bundle_name", "open_bundle", "origin", "write_bundle"]
