//! The page for whoever looks after a queue: plain files, which the browser takes as they are.
//!
//! Owns: the files, and the policy under which a browser shows them. What the page shows and does goes through the API.

/// The policy lets the page use its own files and the API, and nothing else. No script or style stands inside a file,
/// so that a text that comes from a job never becomes one.
pub const HEADERS: &str = "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; \
                           style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'; require-trusted-types-for 'script'\r\n\
                           Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
                           Cross-Origin-Resource-Policy: same-origin\r\n";

/// The media type and the content of the file under this path, if there is one.
#[must_use]
pub fn file(path: &str) -> Option<(&'static str, &'static str)> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Some(match path {
        "/" => ("text/html; charset=utf-8", include_str!("index.html")),
        "/style.css" => ("text/css; charset=utf-8", include_str!("style.css")),
        "/main.js" => (SCRIPT, include_str!("main.js")),
        _ => return None,
    })
}
