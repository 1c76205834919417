"""The data sets that are published as tar files."""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from memo_tta.archives import damage_raises
from memo_tta.data.fetch.download import verify_checksum
from memo_tta.data.tar_members import members, open_plain_tar
from memo_tta.errors import DataError
from memo_tta.files import data_folder

MAX_DEPTH = 8  # folders inside each other; ImageNet-C has four


@dataclass(frozen=True)
class TarArchive:
    """A published tar file, and where its folders go below $MEMO_DATA."""

    url: str
    checksum: str
    folders: dict[str, str]  # folder in the archive -> folder below $MEMO_DATA

    @property
    def file_name(self) -> str:
        return self.url.rpartition("/")[2]

    def is_present(self) -> bool:
        """Return whether all of its folders are on disk."""
        return all((data_folder() / destination).is_dir() for destination in self.folders.values())

    def unpack(self, path: Path) -> None:
        """Unpack the file; folders appear complete, and existing ones are kept."""
        root = data_folder()
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unpack-", dir=root) as folder:
            with damage_raises(DataError, f"{path}: not a tar file, or damaged"):
                _extract(path, Path(folder))
            for name, destination in self.folders.items():
                source, target = Path(folder) / name, root / destination
                if not source.is_dir():
                    raise DataError(f"{path}: contains no folder {name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists():
                    source.rename(target)


def _extract(path: Path, folder: Path) -> None:
    with open_plain_tar(path) as tar:
        tar.extractall(folder, _shallow(members(tar, path.stat().st_size)), filter="data")


def _shallow(found: Iterator[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
    """Yield the members; raise for one that is deep inside folders."""
    for member in found:
        if len(PurePosixPath(member.name).parts) > MAX_DEPTH:
            raise ValueError(f"{member.name}: more than {MAX_DEPTH} folders inside each other")
        yield member


def _imagenet_c(kind: str, md5: str, *corruptions: str) -> TarArchive:
    url = f"https://zenodo.org/records/2235448/files/{kind}.tar"
    return TarArchive(url, f"md5:{md5}", {name: f"imagenet-c/{name}" for name in corruptions})


def _hendrycks(name: str, md5: str) -> TarArchive:
    return TarArchive(f"https://people.eecs.berkeley.edu/~hendrycks/{name}.tar", f"md5:{md5}", {name: name})


ARCHIVES = {
    "cifar10-c": [
        TarArchive(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
            {"CIFAR-10-C": "cifar10-c"},
        )
    ],
    "imagenet-c": [
        _imagenet_c(
            "noise", "e80562d7f6c3f8834afb1ecf27252745", "gaussian_noise", "shot_noise", "impulse_noise"
        ),
        _imagenet_c(
            "blur",
            "2d8e81fdd8e07fef67b9334fa635e45c",
            *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
        ),
        _imagenet_c("weather", "33ffea4db4d93fe4a428c40a6ce0c25d", "snow", "frost", "fog", "brightness"),
        _imagenet_c(
            "digital",
            "89157860d7b10d5797849337ca2e5c03",
            *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
        ),
        _imagenet_c(
            "extra",
            "d492dfba5fc162d8ec2c3cd8ee672984",
            *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
        ),
    ],
    "imagenet-r": [_hendrycks("imagenet-r", "a61312130a589d0ca1a8fca1f2bd3337")],
    "imagenet-a": [_hendrycks("imagenet-a", "c3e55429088dc681f30d81f4726b6595")],
}


def unpack_local_copy(path: Path, archives: Sequence[TarArchive]) -> None:
    """Unpack the user's copy of one of the archives, recognised by its file name."""
    for archive in archives:
        if path.name == archive.file_name:
            verify_checksum(path, archive.checksum, str(path))
            archive.unpack(path)
            return
    names = " or ".join(archive.file_name for archive in archives)
    raise DataError(f"{path}: expected a file named {names}")
