"""A Python service without code for OpenTelemetry: `opentelemetry-instrument` and the environment instrument it.

service.py PORT ROUTE[=URL]...

A request for ROUTE calls URL, if there is one. /slow?ms=N makes each request take N ms longer.
"""

import logging
import sys
import time

import flask
import requests

app = flask.Flask(__name__)
slow = [0.0]
log = logging.getLogger("service")
log.setLevel(logging.INFO)
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def serve(route, url):
    def handle():
        log.info("request for %s", route)
        time.sleep(slow[0])
        if url:
            requests.get(url, timeout=10).raise_for_status()
        return "done\n"

    app.add_url_rule(route, route, handle)


@app.route("/slow")
def make_slow():
    slow[0] = float(flask.request.args["ms"]) / 1000
    return "as you like\n"


for argument in sys.argv[2:]:
    serve(*argument.split("=", 1) if "=" in argument else (argument, None))
app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
