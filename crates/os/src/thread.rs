//! Threads for whose end nobody waits, and which are started however little memory is left.
//!
//! Owns: their start. A thread of the standard library maps a stack for its signal handler once it runs, and ends the
//! process if there is no memory for it.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use super::hand_over::leave_signals_to_others;

type Work = Box<dyn FnOnce() + Send>;

/// The work needs little, and the server may have a limit on its address space.
const STACK_BYTES: usize = 256 * 1024;

/// Does `work`, which must not panic, on another thread. Returns whether that was possible; if not, `work` is dropped.
pub(crate) fn run_beside(work: impl FnOnce() + Send + 'static) -> bool {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        leave_signals_to_others();
        // SAFETY: the pointer comes from the box below, and was made for this call alone.
        let work = unsafe { Box::from_raw(work.cast::<Work>()) };
        work();
        ptr::null_mut()
    }
    let work = Box::into_raw(Box::new(Box::new(work) as Work));
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the attributes are used between their initialization and their end, and the thread if it was started.
    // The box is taken back if no thread has it.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            drop(Box::from_raw(work));
            return false;
        }
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
        let result = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), run, work.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if result == 0 {
            libc::pthread_detach(thread.assume_init());
        } else {
            drop(Box::from_raw(work));
        }
        result == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn the_work_is_done_on_another_thread() {
        let (sender, receiver) = mpsc::channel();
        assert!(run_beside(move || sender.send(thread::current().id()).unwrap()));
        assert_ne!(receiver.recv().unwrap(), thread::current().id());
    }

    /// Runs in the child of the next test: starts threads, with room for more and more of their memory.
    #[test]
    #[cfg(target_os = "linux")]
    #[ignore = "runs as a child of other tests"]
    fn child_starts_threads_without_memory() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

        let (_, maximum) = getrlimit(Resource::RLIMIT_AS).unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB")).unwrap();
        let size_kib: rlim_t = size.trim().parse().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let mut started = 0;
        for room_kib in (0..800).step_by(4) {
            setrlimit(Resource::RLIMIT_AS, (size_kib + room_kib) * 1024, maximum).unwrap();
            let of_thread = Arc::clone(&done);
            started += usize::from(run_beside(move || {
                of_thread.fetch_add(1, Ordering::Relaxed);
            }));
            while Arc::strong_count(&done) > 1 {
                thread::yield_now();
            }
        }
        setrlimit(Resource::RLIMIT_AS, maximum, maximum).unwrap();
        assert!((1..200).contains(&started), "some fit, and some do not: {started}");
        assert_eq!(done.load(Ordering::Relaxed), started);
        crate::child::Child::say("it lives");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_without_memory_does_not_end_the_process() {
        let mut child =
            crate::child::Child::start("thread::tests::child_starts_threads_without_memory", "".as_ref());
        assert_eq!(child.line(), "it lives");
        assert!(child.finish().success());
    }
}
