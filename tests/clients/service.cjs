// A Node service without code for OpenTelemetry: `--require @opentelemetry/auto-instrumentations-node/register` and the
// environment instrument it.
//
// service.cjs PORT ROUTE[=URL]...
//
// A request for ROUTE calls URL, if there is one. /slow?ms=N makes each request take N ms longer.

const http = require("node:http");
const log = require("pino")({}, require("node:fs").createWriteStream("/dev/null"));

const [port, ...routes] = process.argv.slice(2);
const urls = new Map(routes.map((route) => (route.includes("=") ? route.split(/=(.*)/s, 2) : [route, null])));
let slow = 0;

function call(url) {
  return new Promise((resolve, reject) => {
    const request = http.get(url, (response) => {
      response.resume();
      response.on("end", () => (response.statusCode === 200 ? resolve() : reject(new Error(String(response.statusCode)))));
    });
    request.on("error", reject);
  });
}

async function serve(route) {
  log.info({ route }, "request");
  if (slow > 0) await new Promise((resolve) => setTimeout(resolve, slow));
  if (urls.get(route)) await call(urls.get(route));
}

http
  .createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://service");
    if (pathname === "/slow") {
      slow = Number(searchParams.get("ms"));
      return response.end("as you like\n");
    }
    if (!urls.has(pathname)) {
      response.statusCode = 404;
      return response.end();
    }
    serve(pathname).then(
      () => response.end("done\n"),
      (error) => {
        response.statusCode = 502;
        response.end(String(error));
      },
    );
  })
  .listen(Number(port), "127.0.0.1");
