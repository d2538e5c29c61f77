//! Several servers: the choice of the server for a key.
//!
//! Owns: the choice, by rendezvous hashing: each server gets a number from its name and the key, and the largest number
//! wins. If a server is added or removed, only the keys move that belong to it. It is twenty lines, with the same
//! result in every language; a library would have its own hash.
//!
//! Never talks to a server. Driven by: callers, who have a client or a pool for each server.

use std::fmt;

/// Servers by key. `T` is the caller's value for each: an address, a [`Pool`](crate::Pool), a client.
///
/// The names decide, so they must be the same in each program, and must not change when a server moves to another
/// address. Jobs of one key are on one server: tags such as `idp:`, `con:` and `grp:` count within it. Each server has
/// its own job ids. One worker can work for all of them: [`Worker::server`](crate::Worker::server). The program
/// `examples/servers.rs` does both.
///
/// ```
/// use beanstalk_client::{Connector, Pool, Servers};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = |address: &str| Ok::<_, Box<dyn std::error::Error>>(Pool::new(Connector::new(), address.parse()?, 4));
/// let servers = Servers::new()
///     .add("a", pool("10.0.0.1:11300")?)
///     .add("b", pool("10.0.0.2:11300")?)
///     .add_weighted("c", 2.0, pool("10.0.0.3:11300")?); // gets twice as many keys
/// let (name, _pool) = servers.server_for(b"customer-7").expect("there is a server");
/// assert_eq!(name, "a");
/// // The second choice, for jobs that may be anywhere:
/// assert_eq!(servers.ranked(b"customer-7").nth(1).expect("there are three").0, "b");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Servers<T> {
    servers: Vec<RankedServer<T>>,
}

#[derive(Clone)]
struct RankedServer<T> {
    name: String,
    weight: f64,
    value: T,
}

impl<T> Default for Servers<T> {
    fn default() -> Self {
        Self { servers: Vec::new() }
    }
}

impl<T> fmt::Debug for Servers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.servers.iter().map(|server| &server.name)).finish()
    }
}

impl<T> Servers<T> {
    /// An empty list of servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server with this name, or replaces it.
    #[must_use]
    pub fn add(self, name: &str, value: T) -> Self {
        self.add_weighted(name, 1.0, value)
    }

    /// Adds a server that gets `weight` times as many keys as a server of weight 1.
    ///
    /// # Panics
    /// If the weight is not a positive number.
    #[must_use]
    pub fn add_weighted(mut self, name: &str, weight: f64, value: T) -> Self {
        assert!(
            weight > 0.0 && weight.is_finite(),
            "the weight of {name} is {weight}, not a positive number"
        );
        self.servers.retain(|server| server.name != name);
        self.servers.push(RankedServer { name: name.to_owned(), weight, value });
        self
    }

    /// The server of the key, with its name; `None` if there is no server.
    pub fn server_for(&self, key: &[u8]) -> Option<(&str, &T)> {
        let best = self.servers.iter().max_by(|a, b| a.score(key).total_cmp(&b.score(key)));
        best.map(|server| (server.name.as_str(), &server.value))
    }

    /// All servers in the order in which the key prefers them: if the first is removed, the second gets its keys.
    pub fn ranked(&self, key: &[u8]) -> impl Iterator<Item = (&str, &T)> {
        let mut servers: Vec<_> = self.servers.iter().map(|server| (server.score(key), server)).collect();
        servers.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        servers.into_iter().map(|(_, server)| (server.name.as_str(), &server.value))
    }

    /// All servers, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.servers.iter().map(|server| (server.name.as_str(), &server.value))
    }

    /// All servers, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.servers.iter_mut().map(|server| (server.name.as_str(), &mut server.value))
    }
}

impl<T> RankedServer<T> {
    /// The score of the server for the key: `-weight / ln(x)`, where x is the hash of its name, a zero byte and the key
    /// as a fraction between 0 and 1.
    fn score(&self, key: &[u8]) -> f64 {
        let hash = hash(self.name.as_bytes(), key);
        // The 53 bits of a fraction, which is neither 0 nor 1.
        let fraction = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -self.weight / fraction.ln()
    }
}

/// FNV-1a of the name, a zero byte and the key, and then the finalizer of MurmurHash3, because FNV mixes the last bytes
/// poorly.
fn hash(name: &[u8], key: &[u8]) -> u64 {
    let bytes = name.iter().chain(&[0]).chain(key);
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn servers(names: &[&str]) -> Servers<()> {
        names.iter().fold(Servers::new(), |servers, name| servers.add(name, ()))
    }

    fn keys() -> impl Iterator<Item = String> {
        (0..20_000).map(|number| format!("customer-{number}"))
    }

    #[test]
    fn keys_are_spread_by_weight() {
        let servers = servers(&["a", "b"]).add_weighted("c", 2.0, ());
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        let keys: Vec<String> = keys().collect();
        for key in &keys {
            *counts.entry(servers.server_for(key.as_bytes()).unwrap().0).or_default() += 1;
        }
        for (name, expected) in [("a", 5_000), ("b", 5_000), ("c", 10_000)] {
            assert!(counts[name].abs_diff(expected) < 300, "{counts:?}");
        }
    }

    #[test]
    fn only_the_keys_of_a_server_that_goes_move_and_each_to_its_second_choice() {
        let (all, fewer) = (servers(&["a", "b", "c", "d"]), servers(&["d", "c", "a"]));
        let mut moved = 0;
        for key in keys() {
            let ranked: Vec<&str> = all.ranked(key.as_bytes()).map(|(name, ())| name).collect();
            assert_eq!(all.server_for(key.as_bytes()).unwrap().0, ranked[0]);
            let expected = if ranked[0] == "b" { ranked[1] } else { ranked[0] };
            moved += u32::from(ranked[0] == "b");
            assert_eq!(fewer.server_for(key.as_bytes()).unwrap().0, expected);
        }
        assert!(moved.abs_diff(5_000) < 300, "{moved}");
    }

    #[test]
    fn the_choice_is_the_same_for_ever() {
        // A program in another language must find the same server: these numbers must not change.
        assert_eq!([hash(b"", b""), hash(b"a", b"key")], [0xb903_4ad3_7056_f5fb, 0x218a_bb4b_3b90_a729]);
        let servers = servers(&["a", "b", "c"]);
        let chosen: String =
            (0..16).map(|n| servers.server_for(format!("key {n}").as_bytes()).unwrap().0).collect();
        assert_eq!(chosen, "bbcbabbbabacbbcc");
    }

    #[test]
    fn a_name_is_there_once_and_no_server_is_none() {
        assert!(servers(&[]).server_for(b"x").is_none());
        let servers = servers(&["a", "a"]);
        assert_eq!(servers.iter().count(), 1);
    }
}
