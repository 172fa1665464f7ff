"""Probes of a vLLM container that look at the work, not at the door.

vLLM's `/health` says that its processes live. A worker that has loaded its model but cannot compute passes it, and so
does one whose engine hangs. So the startup probe has one token generated, and the liveness probe restarts a worker
whose requests have not moved for minutes, however long they are: an engine that computes counts its iterations.
"""

from swingpool_control.vllm import tls
from swingpool_control.vllm.metrics import METRICS

STALLED_S = 180
"""Requests that run, and not one iteration in so long: it hangs. The slowest iteration of any model takes seconds."""

ANSWER_S = 15
"""For the metrics page of a worker that is too busy to answer at once."""

_PROGRESS = (
    "vllm:iteration_tokens_total_count",
    f"{METRICS['generated_tokens'].names[0].name}_total",
    f"{METRICS['prompt_tokens'].names[0].name}_total",
)
_UNDER_WAY = (METRICS["running"].names[0].name, METRICS["waiting"].names[0].name)

_TLS = """
tls=None
if url.startswith("https"):
    import ssl
    tls=ssl.create_default_context(cafile=own+"/ca.crt")
    tls.check_hostname=False
    tls.load_cert_chain(own+"/tls.crt",own+"/tls.key")
""".strip()
"""Speaks to a worker with its own certificate, which is for no address."""

STARTED = f"""
import json,sys,urllib.request
url,own=sys.argv[1:3]
{_TLS}
model=json.load(urllib.request.urlopen(url+"/v1/models",timeout=5,context=tls))["data"][0]["id"]
body=json.dumps({{"model":model,"prompt":[5],"max_tokens":1,"ignore_eos":True}}).encode()
ask=urllib.request.Request(url+"/v1/completions",body,{{"content-type":"application/json"}})
urllib.request.urlopen(ask,timeout=30,context=tls).read()
""".strip()
"""Python: exits with zero once the worker has generated a token. Its arguments are the worker's URL and, with TLS,
the directory of its certificate."""

ALIVE = f"""
import json,os,sys,time,urllib.request
url,own,kept=sys.argv[1:4]
{_TLS}
page=urllib.request.urlopen(url+"/metrics",timeout={ANSWER_S},context=tls).read().decode()
def total(*names):
    return sum(float(l.rsplit(" ",1)[1]) for l in page.splitlines() if l.split("{{")[0].split(" ")[0] in names)
busy,moved,now=total{_UNDER_WAY!r},total{_PROGRESS!r},time.time()
try: before,since=json.load(open(kept))
except Exception: before,since=None,now
if moved!=before or not busy: since=now
with open(kept+".new","w") as f: json.dump([moved,since],f)
os.replace(kept+".new",kept)
if now-since>{STALLED_S}: sys.exit("no iteration in %d s while %d requests wait or run"%(now-since,busy))
""".strip()
"""Python: exits with one if requests are there and nothing has moved for STALLED_S.

Its arguments are the worker's URL, the directory of its certificate, and a file of its own, in which it
keeps what it saw.
"""


def started_command(url: str, *, own: str = tls.DIRECTORY) -> list[str]:
    """Return the startup probe's command; `own` is where the worker's certificate lies, if the URL is one of TLS."""
    return ["python3", "-I", "-c", STARTED, url, own]


def alive_command(url: str, kept: str, *, own: str = tls.DIRECTORY) -> list[str]:
    """Return the liveness probe's command; see `started_command`, and `kept` is a file of its own."""
    return ["python3", "-I", "-c", ALIVE, url, own, kept]
