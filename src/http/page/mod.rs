//! The status page: plain files under the policy of [`app`]; the page gets its data from the API.

use super::app::{self, File};

/// The files. The page shares `base.css` and `figures.js` with the administration page.
pub(crate) const FILES: &[File] = &[
    ("/", app::HTML, include_str!("page.html")),
    app::BASE,
    ("/page.css", app::STYLE, include_str!("page.css")),
    ("/page.js", app::SCRIPT, include_str!("page.js")),
    app::FIGURES,
];

/// The paths that the page gets from the API. At the site of this page, the API has no other paths.
pub(crate) const API_PATHS: [&str; 2] = ["/api/v1/server", "/api/v1/tubes"];
