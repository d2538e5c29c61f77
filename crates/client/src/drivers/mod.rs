//! The code that waits, once for both drivers: the blocking and the asynchronous one.
//!
//! Owns: the loop of the engine's steps and the calls of a connection (`calls`), a client with a method for each
//! command (`client`), the time for each address of a host and the options of its socket (`connect`), and which
//! connections of a pool are idle (`pool`). Each is a macro, which a file of a driver expands: `waiting` makes methods
//! of it that wait in one driver, and futures in the other. With a feature that chooses between the drivers, no program
//! could use both. Never opens, reads or writes a socket. The macros decide nothing that `core` can decide without
//! waiting. Workers have no file here: `worker` has what both do.
//!
//! A macro imports what it names, and the file uses these imports too. It takes these names from the file:
//!
//! | macro | expanded in | what the driver provides |
//! |---|---|---|
//! | `calls` | `connection.rs` | the type `Connection` with the fields `engine`, an [`Engine`](crate::core::engine::Engine), and `stream`, an option |
//! | | | its methods `open_stream()`, `write(goal)` and `read(goal, missing)`, each of which takes a step of the engine within its time-out |
//! | | | the functions `now() -> Instant` and `sleep(Duration)` |
//! | `client` | `client.rs` | the function `sleep(Duration)`; as arguments, the method of [`Connector`](crate::Connector) that connects, and the documentation of `Client` |
//! | | | `connection::Connection`, beside the file |
//! | `connect_to_one` | beside the stream | as arguments, the functions that read the clock, and that connect to an address within a limit |
//! | `pool` | `pool.rs` | the type `Semaphore`, which counts the connections that can be borrowed, and `Permit`, for one of them, until it is dropped |
//! | | | the functions `semaphore(permits) -> Semaphore` and `acquire(Arc<Semaphore>, Option<Duration>) -> Option<Permit>`, which waits for a permit, at most this long; `None` is no limit |
//! | | | the arguments of `client`, for `Pool` |
//! | | | `client::Client`, beside the file, with the method `is_alive() -> bool` of its connection |
//!
//! In the asynchronous driver, the methods and `sleep` and `acquire` are futures.

pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod pool;
pub(crate) mod waiting;
