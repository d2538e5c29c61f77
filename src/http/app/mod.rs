//! The page of `--admin`: plain files, which the browser uses without a build step.
//!
//! Owns: the files, and the content policy under which a browser shows them. The page reads and changes everything
//! through the API.

/// The policy permits the page's own files and the API, and nothing else. There are no inline scripts or styles, and no
/// text can become markup, so the text of a job is always shown as text.
pub(crate) const HEADERS: &str = "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; \
                           style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n\
                           Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
                           Cross-Origin-Resource-Policy: same-origin\r\n";

/// A path, its media type and its content.
type File = (&'static str, &'static str, &'static str);

/// The media type of scripts.
pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The formats, elements and plots that this page shares with the status page.
pub(crate) const FIGURES: &str = include_str!("../figures.js");

const FILES: &[File] = &[
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("style.css")),
    ("/main.js", SCRIPT, include_str!("main.js")),
    ("/api.js", SCRIPT, include_str!("api.js")),
    ("/figures.js", SCRIPT, FIGURES),
    ("/actions.js", SCRIPT, include_str!("actions.js")),
    ("/job.js", SCRIPT, include_str!("job.js")),
    ("/overview.js", SCRIPT, include_str!("overview.js")),
    ("/clients.js", SCRIPT, include_str!("clients.js")),
    ("/tube.js", SCRIPT, include_str!("tube.js")),
    ("/widgets.js", SCRIPT, include_str!("widgets.js")),
];

/// The description of the API.
const DESCRIPTION: (&str, &str) =
    ("application/yaml; charset=utf-8", include_str!("../../../doc/openapi.yaml"));

/// The media type and the content of the file under this path, if there is one.
#[must_use]
pub(crate) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    if path == "/openapi.yaml" {
        return Some(DESCRIPTION);
    }
    FILES.iter().find(|(found, ..)| *found == path).map(|&(_, media_type, content)| (media_type, content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_comply_with_the_policy() {
        for (path, _, content) in FILES {
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
        for (path, _, content) in FILES {
            for part in
                content.split(['"', '\'']).filter(|part| part.ends_with(".js") || part.ends_with(".css"))
            {
                let name = format!("/{}", part.trim_start_matches("./"));
                assert!(file(&name).is_some(), "{path} names {part}");
            }
        }
    }
}
