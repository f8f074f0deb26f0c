//! The files of the page. They are part of the program.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;

use super::Shared;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Path, type and text of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("../../page/index.html")),
    ("/style.css", STYLE, include_str!("../../page/style.css")),
    ("/icon.svg", PICTURE, include_str!("../../page/icon.svg")),
    ("/main.js", SCRIPT, include_str!("../../page/main.js")),
    ("/base.js", SCRIPT, include_str!("../../page/base.js")),
    ("/live.js", SCRIPT, include_str!("../../page/live.js")),
    ("/overview.js", SCRIPT, include_str!("../../page/overview.js")),
    ("/ring.js", SCRIPT, include_str!("../../page/ring.js")),
    ("/timeline.js", SCRIPT, include_str!("../../page/timeline.js")),
    ("/methods.js", SCRIPT, include_str!("../../page/methods.js")),
    ("/grains.js", SCRIPT, include_str!("../../page/grains.js")),
    ("/grain.js", SCRIPT, include_str!("../../page/grain.js")),
    ("/turns.js", SCRIPT, include_str!("../../page/turns.js")),
    ("/lists.js", SCRIPT, include_str!("../../page/lists.js")),
    ("/log.js", SCRIPT, include_str!("../../page/log.js")),
];

pub(super) fn routes() -> Router<Shared> {
    let mut routes = Router::new();
    for &(path, kind, text) in FILES {
        // A program of another version has other files.
        let file = async move || ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text);
        routes = routes.route(path, get(file));
    }
    routes
}
