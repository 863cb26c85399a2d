// Goes on to the page itself. A browser that a link of another page leads here shows the session's cookie
// (SameSite=Strict) only from here on.

const { hash } = location;
// To go to the address that is shown already would be no request.
history.replaceState(null, "", "/arrival");
location.replace(`/${hash}`);
