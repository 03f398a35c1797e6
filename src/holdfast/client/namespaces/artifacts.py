"""`client.artifacts`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, artifacts


class ArtifactNamespace(Surface[Mode]):
    """Artifacts: save, load, stream, find, version, share and delete files."""

    save = artifacts.save
    write = artifacts.write
    load = artifacts.load
    stream = artifacts.stream
    upload = artifacts.upload
    download = artifacts.download
    get = artifacts.get
    list = artifacts.list_
    versions = artifacts.versions
    usage = artifacts.usage
    delete = artifacts.delete
    grant = artifacts.grant
    revoke = artifacts.revoke
    grants = artifacts.grants
    share = artifacts.share
    shared = artifacts.shared
    stream_shared = artifacts.stream_shared
    collect = artifacts.collect
    verify = artifacts.verify
    rekey = artifacts.rekey
    store = artifacts.store
