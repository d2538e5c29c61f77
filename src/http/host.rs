//! The host that a request names: in the header `Host`, or in an absolute target.
//!
//! Owns: the decision which hosts cannot be the host of a page from another server. A browser lets a page read
//! responses from the page's own host. The owner of that host can make its name resolve to the address of this server
//! (DNS rebinding), but a request from that page still has the name of the other host.

use std::net::IpAddr;

/// Whether `host`, with or without a port, is an IP address or a name of the local machine. A page from another server
/// cannot have such a host.
#[must_use]
pub fn is_address_or_local(host: &str) -> bool {
    let name = name_of(host);
    name.starts_with('[') || name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// `host` without its port.
#[must_use]
pub fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The host and the path of an absolute target, such as `http://host:9130/metrics`. Clients send it to proxies.
#[must_use]
pub fn split_absolute(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let path = &rest[end..];
    Some((&rest[..end], if path.starts_with('/') { path } else { "/" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_the_local_machine_are_distinguished_from_names() {
        for host in ["127.0.0.1", "10.0.0.7:9130", "[::1]", "[::1]:9130", "localhost", "LocalHost:9130"] {
            assert!(is_address_or_local(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:9130",
            "localhost.evil.example",
            "1.2.3",
            "1.2.3.256",
        ] {
            assert!(!is_address_or_local(host), "{host}");
        }
    }

    #[test]
    fn absolute_targets_have_a_host_and_a_path() {
        assert_eq!(split_absolute("http://a:1/metrics?x"), Some(("a:1", "/metrics?x")));
        assert_eq!(split_absolute("HTTP://a"), Some(("a", "/")));
        assert_eq!(split_absolute("http://a?x"), Some(("a", "/")));
        assert_eq!(split_absolute("https://a/b"), Some(("a", "/b")));
        for target in ["/metrics", "/http://a/", "ftp://a/", "*", ""] {
            assert_eq!(split_absolute(target), None, "{target}");
        }
    }
}
