//! The page of `--admin`: plain files, which the browser uses without a build step.
//!
//! Owns: the files, and the content policy under which a browser shows them and the files of the status page. The page
//! reads and changes everything through the API.

/// The policy permits a page's own files and the API, and nothing else. There are no inline scripts or styles, and no
/// text can become markup, so the text of a job is always shown as text.
pub(crate) const HEADERS: &str = "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; \
                           style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n\
                           Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
                           Cross-Origin-Resource-Policy: same-origin\r\n";

/// A path, its media type and its content.
pub(crate) type File = (&'static str, &'static str, &'static str);

// The media types.
pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const STYLE: &str = "text/css; charset=utf-8";
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The styles that this page shares with the status page.
pub(crate) const BASE: File = ("/base.css", STYLE, include_str!("../base.css"));

/// The formats, elements and plots that it shares with that page.
pub(crate) const FIGURES: File = ("/figures.js", SCRIPT, include_str!("../figures.js"));

/// The files, and the description of the API.
pub(crate) const FILES: &[File] = &[
    ("/", HTML, include_str!("index.html")),
    BASE,
    ("/style.css", STYLE, include_str!("style.css")),
    ("/main.js", SCRIPT, include_str!("main.js")),
    ("/api.js", SCRIPT, include_str!("api.js")),
    FIGURES,
    ("/actions.js", SCRIPT, include_str!("actions.js")),
    ("/job.js", SCRIPT, include_str!("job.js")),
    ("/overview.js", SCRIPT, include_str!("overview.js")),
    ("/clients.js", SCRIPT, include_str!("clients.js")),
    ("/tube.js", SCRIPT, include_str!("tube.js")),
    ("/filter.js", SCRIPT, include_str!("filter.js")),
    ("/widgets.js", SCRIPT, include_str!("widgets.js")),
    ("/openapi.yaml", "application/yaml; charset=utf-8", include_str!("../../../doc/openapi.yaml")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::page;

    #[test]
    fn the_files_comply_with_the_policy() {
        for (path, _, content) in FILES.iter().chain(page::FILES) {
            if *path == "/openapi.yaml" {
                continue;
            }
            let local = content.replace("http://www.w3.org/2000/svg", "");
            for banned in [
                "http:",
                "https:",
                "@import",
                "url(",
                " style=",
                " onclick=",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "<script>",
                "<style>",
            ] {
                assert!(!local.contains(banned), "{path}: {banned}");
            }
        }
    }

    #[test]
    fn every_file_that_is_referenced_exists() {
        for files in [FILES, page::FILES] {
            let words = files.iter().flat_map(|(_, _, content)| content.split(['"', '\'']));
            for named in words.filter(|word| word.ends_with(".js") || word.ends_with(".css")) {
                let path = format!("/{}", named.trim_start_matches("./"));
                assert!(files.iter().any(|(found, ..)| *found == path), "{named}");
            }
        }
    }
}
