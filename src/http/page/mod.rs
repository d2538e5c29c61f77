//! The page for people, and the figures that its script fetches.

mod data;
mod history;
mod query;

pub use self::data::{CONTENT_TYPE as FIGURES_CONTENT_TYPE, Json, figures, write_history};
pub use self::history::History;
pub use self::query::{Query, Rank};

/// The page: one file, which needs no other.
pub const HTML: &str = include_str!("page.html");

/// The policy lets the page apply its own style, run its own script and fetch its own figures, and nothing else. It
/// names the style and the script by their hashes.
pub const HEADERS: &str = concat!(
    "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; ",
    "style-src 'sha256-JqhqHpU7ZLHMEk4SJyJvChlYamgjth/EKV5Y/BE69eU='; ",
    "script-src 'sha256-LFTIa40VHcEFDjcLQGIKxXqgZT2Ro6U5idygIlR/0Dw='; ",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
    "Referrer-Policy: no-referrer\r\n",
);

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    fn hash_of(element: &str) -> String {
        let (_, rest) = HTML.split_once(&format!("<{element}>")).expect("there is such an element");
        let (content, rest) = rest.split_once(&format!("</{element}>")).expect("it ends");
        assert!(!rest.contains(&format!("<{element}")), "there is one");
        BASE64_STANDARD.encode(Sha256::digest(content))
    }

    #[test]
    fn the_policy_knows_the_style_and_the_script_by_their_hashes() {
        let (style, script) = (hash_of("style"), hash_of("script"));
        assert!(HEADERS.contains(&format!("style-src 'sha256-{style}';")), "the style's hash is {style}");
        assert!(HEADERS.contains(&format!("script-src 'sha256-{script}';")), "the script's hash is {script}");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        for elsewhere in ["http:", "https:", "src=", "@import", "url(", " style=", " onclick="] {
            let local = HTML.replace("http://www.w3.org/2000/svg", "");
            assert!(!local.contains(elsewhere), "{elsewhere}");
        }
    }
}
