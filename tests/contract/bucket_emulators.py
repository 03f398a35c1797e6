"""The conformance suite over Google's API and Azure's: `./scripts/test-buckets`.

Google Cloud Storage is its XML API, spoken before moto; Azure is Azurite, the vendor's own
emulator, which the script installs.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path

import pytest

from holdfast.artifacts import BlobStoreOptions, open_blob_store
from holdfast.testing import ArtifactBackendConformance

sys.path.insert(0, str(Path(__file__).parent))
from s3_server import google_bucket, serve_google, serve_s3

ACCOUNT = "devstoreaccount1"
# The key that Azurite documents for everybody: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def google():
    with serve_s3() as address, serve_google(address) as google:
        yield google


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    program = shutil.which("azurite-blob")
    assert program, "azurite-blob is not installed; ./scripts/test-buckets does that"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = tmp_path_factory.mktemp("azurite")
    words = ["--silent", "--skipApiVersionCheck", "--location", str(place)]
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen([program, *words, *where]) as process:
        try:
            address = f"http://127.0.0.1:{port}/{ACCOUNT}"
            make_container(address, "holdfast")
            yield address
        finally:
            process.terminate()


def make_container(address: str, name: str) -> None:
    """Make a container as soon as the server answers."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        date = formatdate(usegmt=True)
        said = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
        said += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.digest(base64.b64decode(KEY), said.encode(), hashlib.sha256)
        signed = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": signed}
        url = f"{address}/{name}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers=headers)
        try:
            urllib.request.urlopen(request).close()
            return
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > until:
                raise


class TestGoogle(ArtifactBackendConformance):
    @pytest.fixture(autouse=True)
    def server(self, google):
        self.address = google

    def make_blobs(self, place):
        return google_bucket(self.address, f"tests/{place.name}/{hash(str(place)) & 0xFFFF}")


class TestAzure(ArtifactBackendConformance):
    @pytest.fixture(autouse=True)
    def server(self, azure):
        self.address = azure

    def make_blobs(self, place):
        names = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
        options = BlobStoreOptions(base_dir=Path("/"), endpoint=self.address, variables=names)
        prefix = f"tests/{place.name}/{hash(str(place)) & 0xFFFF}"
        return open_blob_store(f"az://holdfast/{prefix}", options)
