//! The status page: a file, which gets its data from the API.

/// The page. Its script imports `figures.js`, which it shares with the administration page.
pub(crate) const HTML: &str = include_str!("page.html");

/// The paths that the page gets from the API. At the site of this page, the API has no other paths.
pub(crate) const FIGURES: [&str; 2] = ["/api/v1/server", "/api/v1/tubes"];

/// The policy permits the page's own style, scripts and figures, and nothing else. It names the style and the script in
/// the page by their hashes.
pub(crate) const HEADERS: &str = concat!(
    "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; ",
    "style-src 'sha256-XcS++pDXXisUn2OPuPRy96LNIH8AW9hpfstxEiBNkE4='; ",
    "script-src 'self' 'sha256-D24P4kkXnf93YbiJ0KcrfIF1ONNSSouxSskifJ4vUQk='; ",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
    "Referrer-Policy: no-referrer\r\n",
);

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    fn hash_of(element: &str, attributes: &str) -> String {
        let (_, rest) =
            HTML.split_once(&format!("<{element}{attributes}>")).expect("there is such an element");
        let (content, rest) = rest.split_once(&format!("</{element}>")).expect("it ends");
        assert!(!rest.contains(&format!("<{element}")), "there is one");
        BASE64_STANDARD.encode(Sha256::digest(content))
    }

    #[test]
    fn the_policy_has_the_hashes_of_the_style_and_the_script() {
        let (style, script) = (hash_of("style", ""), hash_of("script", " type=\"module\""));
        assert!(HEADERS.contains(&format!("style-src 'sha256-{style}';")), "the style's hash is {style}");
        assert!(
            HEADERS.contains(&format!("script-src 'self' 'sha256-{script}';")),
            "the script's hash is {script}"
        );
    }

    #[test]
    fn the_page_needs_nothing_from_other_origins() {
        for foreign in ["http:", "https:", "src=", "@import", "url(", " style=", " onclick="] {
            let local = HTML.replace("http://www.w3.org/2000/svg", "");
            assert!(!local.contains(foreign), "{foreign}");
        }
    }
}
