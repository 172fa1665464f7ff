"""Who may call the API server: one token for each component, so that RBAC and the audit log tell them apart."""

import csv
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster.interface import ClusterError

ADMIN = "admin"


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of the API server; groups decide what it may do."""

    name: str
    groups: tuple[str, ...] = ()


USERS = (
    User(name=ADMIN, groups=("system:masters",)),
    User(name="system:kube-controller-manager"),
    User(name="system:kube-scheduler"),
    User(name="system:kube-proxy"),
    User(name="coredns", groups=("system:masters",)),
)


def node_user(node: str) -> User:
    """Return the user that the Node authorizer knows as a node's kubelet."""
    return User(name=f"system:node:{node}", groups=("system:nodes",))


class Credentials:
    """The tokens, keys and kubeconfigs of one control plane, in one directory."""

    def __init__(self, directory: Path, users: tuple[User, ...]) -> None:
        self._directory = directory
        self._users = users
        self.token_file = directory / "tokens.csv"
        self.service_account_key = directory / "service-account.key"
        self.kubelet_client_key = directory / "kubelet-client.key"
        self.kubelet_client_certificate = directory / "kubelet-client.crt"
        """What the API server shows to kubelets; signed by itself, so that it is its own authority."""

    def create(self) -> None:
        """Make the tokens and the keys. Raises ClusterError without openssl."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.token_file.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerows([secrets.token_hex(16), u.name, u.name, ",".join(u.groups)] for u in self._users)
        self.token_file.chmod(0o600)
        _openssl("genrsa", "-out", str(self.service_account_key), "2048")
        subject = ("-subj", "/O=system:masters/CN=kube-apiserver-kubelet-client", "-days", "3650")
        files = ("-keyout", str(self.kubelet_client_key), "-out", str(self.kubelet_client_certificate))
        _openssl("req", "-x509", "-nodes", "-newkey", "rsa:2048", *subject, *files)

    def token(self, user: str) -> str:
        """Return a user's token."""
        with self.token_file.open(newline="") as file:
            return next(row[0] for row in csv.reader(file) if row[1] == user)

    def kubeconfig(self, user: str) -> Path:
        """Return where a user's kubeconfig lies."""
        return self._directory / f"{user.replace(':', '.')}.kubeconfig"

    def write_kubeconfigs(self, *, server: str, ca_file: Path) -> None:
        """Write a kubeconfig for each user, all of which check the server's certificate."""
        for user in self._users:
            document = kubeconfig(server=server, ca_file=ca_file, user=user.name, token=self.token(user.name))
            self.kubeconfig(user.name).write_text(yaml.safe_dump(document))
            self.kubeconfig(user.name).chmod(0o600)


def kubeconfig(*, server: str, ca_file: Path, user: str, token: str) -> dict[str, object]:
    """Return a kubeconfig with one cluster, one user and one context, named `swingpool`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "swingpool", "cluster": {"server": server, "certificate-authority": str(ca_file)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "swingpool", "context": {"cluster": "swingpool", "user": user}}],
        "current-context": "swingpool",
    }


def self_signed(directory: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate that vouches for itself, return its file and its key's. Needs openssl, or ClusterError."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    about = ("-nodes", "-newkey", "rsa:2048", "-days", "30", "-subj", f"/CN={name}")
    _openssl("req", "-x509", *about, "-keyout", str(key), "-out", str(certificate))
    return certificate, key


def _openssl(*arguments: str) -> None:
    command = ["openssl", *arguments]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ClusterError(f"{' '.join(command)}: {error}; is openssl installed?") from None
