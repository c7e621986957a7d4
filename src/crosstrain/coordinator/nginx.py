"""The configuration of an nginx in front of a coordinator: TLS, and blobs straight from the disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosstrain.coordinator.blobs import LARGEST_PART
from crosstrain.domain.timeouts import FRONT_PATIENCE_S, KEEP_ALIVE_S
from crosstrain.errors import UsageError

TEMPLATE = """\
# nginx in front of the coordinator of the run {run}, made by `crosstrain nginx`.
# For the http block: /etc/nginx/conf.d/ or /etc/nginx/sites-enabled/ of most installations.

# The file of a blob that is downloaded; everything else has none, and goes to the coordinator.
map $request_method:$uri $crosstrain_file {{
    default /nothing;
    "~^(GET|HEAD):/v1/blobs/(?<crosstrain_blob>(?<crosstrain_directory>[0-9a-f][0-9a-f])[0-9a-f]+)$" /$crosstrain_directory/$crosstrain_blob;
}}

upstream crosstrain {{
    server {backend};
    keepalive 64;
}}

server {{
    listen {listen} ssl;
    server_name {name};
    ssl_certificate     "{certificate}";
    ssl_certificate_key "{key}";
    ssl_protocols       TLSv1.2 TLSv1.3;
    ssl_session_cache   shared:crosstrain:1m;
{access}
    keepalive_timeout     {keep_alive}s;
    keepalive_requests    100000;
    client_max_body_size  {largest_part}m;
    # A part of an upload goes on to the coordinator while it comes, so that one that is cut is kept as far as it came.
    proxy_request_buffering off;
    proxy_http_version    1.1;
    proxy_set_header      Connection "";
    proxy_set_header      Host $host;
    # The last part of an upload is answered when the blob is verified and on the disk.
    proxy_read_timeout    {patience}s;
    proxy_send_timeout    {patience}s;

    location / {{
        proxy_pass http://crosstrain;
    }}

    location /v1/blobs/ {{
        root "{objects}";
        sendfile on;
        sendfile_max_chunk 2m;
        tcp_nopush on;
        etag off;
        add_header ETag '"$crosstrain_blob"';
        types {{ }}
        default_type application/octet-stream;
        error_page 416 = @coordinator;
        try_files $crosstrain_file @coordinator;
    }}

    location @coordinator {{
        proxy_pass http://crosstrain;
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Front:
    """What nginx is told.

    Attributes:
        run: the run's name.
        listen: address and port, or a port.
        name: the host that sites ask for.
        certificate, key: PEM files.
        backend: host and port of the coordinator.
        objects: directory of its blobs, which nginx must be able to read.
        passwords: a file as `htpasswd` makes it; None lets everybody in.
    """

    run: str
    listen: str
    name: str
    certificate: Path
    key: Path
    backend: str
    objects: Path
    passwords: Path | None = None


def nginx_configuration(front: Front) -> str:
    """The text of the configuration.

    Raises:
        UsageError: a path or a name holds what nginx would take for its own syntax.
    """
    values = {
        "run": front.run,
        "listen": front.listen,
        "name": front.name,
        "certificate": str(front.certificate),
        "key": str(front.key),
        "backend": front.backend,
        "objects": str(front.objects),
        "passwords": str(front.passwords or ""),
    }
    for name, value in values.items():
        if set(value) & set('"\\$;{}\n') or (name in ("listen", "name", "backend") and " " in value):
            raise UsageError(
                f"Expected a {name} without quotes, semicolons, braces and dollar signs, found {value!r}.",
                "choose another path or name",
            )
    passwords = values.pop("passwords")
    access = f'    auth_basic           "crosstrain";\n    auth_basic_user_file "{passwords}";\n' if passwords else ""
    limits = {
        "largest_part": LARGEST_PART >> 20,
        "keep_alive": f"{KEEP_ALIVE_S:g}",
        "patience": f"{FRONT_PATIENCE_S:g}",
    }
    return TEMPLATE.format(access=access, **limits, **values)
