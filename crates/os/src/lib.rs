//! The system calls that the standard library does not make, behind safe functions.
//!
//! Owns: all `unsafe` code of the server, and every use of `libc` and `nix`. Never decides anything about jobs or
//! connections, and uses no other part of the server. `main` calls most of it at the start, the server the rest.
//!
//! ```
//! let before = beanstalkd_os::clock::boot_time_ns();
//! assert!(beanstalkd_os::clock::boot_time_ns() >= before);
//! ```

// An item that no other crate can reach must not be `pub`.
#![warn(unreachable_pub)]
#![allow(unsafe_code)]

pub mod clock;
pub mod directory_lock;
pub mod hand_over;
pub mod limits;
pub mod listen;
pub mod memory;
pub mod privileges;
pub mod process;
pub mod secret_file;
pub mod service_manager;
pub mod settings_file;
pub mod signals;
pub mod socket;

pub use self::process::{CpuTime, Usage};

// The facilities that only Linux has, and their replacements on other systems. Both modules have the same items, so no
// other module has to ask whether it is compiled for Linux.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux;
#[cfg(any(target_os = "linux", target_os = "android"))]
use self::linux as platform;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use self::elsewhere as platform;

pub use self::platform::{link_count, name_file, open_unnamed};

#[cfg(test)]
mod child;
