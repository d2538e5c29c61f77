//! A reserve of memory for the time when the system has no memory left.
//!
//! Owns: the reserve, and the wrapper of the allocator that uses it. If a client decides the size of an allocation, the
//! code can handle a failure and answers OUT_OF_MEMORY. A failure of the many small allocations of data structures
//! cannot be handled, because a change that is half done cannot be undone. The reserve is for these: it is freed when a
//! small allocation fails, and until it is full again the server accepts nothing new.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_long;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::platform;
pub use super::platform::allow_huge_pages;

/// The number of pieces of the reserve. The pieces are small enough that the allocator finds room for them among other
/// blocks. With what the allocator adds to each, this many fit into one of its segments of 32 MiB: near a limit on the
/// address space, there may be no room for a second one.
const PIECES: usize = 30;
/// The size of a piece. All pieces together are much more than the busiest turn needs.
const PIECE: Layout = match Layout::from_size_align(1 << 20, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a page is a valid alignment"),
};
/// Allocations of at least this size do not use the reserve: they would not fit, and the code that asks for them can
/// handle a failure.
const MIN_LARGE_BYTES: usize = 8 << 20;

/// Whether the reserve is used up.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Whether the server is using its reserve. It should then accept nothing new.
#[inline]
#[must_use]
pub fn is_exhausted() -> bool {
    EXHAUSTED.load(Ordering::Relaxed)
}

/// The allocator's option for the delay after which any allocation, on any thread, gives free memory back. The crate
/// has no name for this option, only for its neighbours.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;
/// In milliseconds: a week, which is long enough to mean never.
const NO_PURGE_MS: c_long = 7 * 24 * 3600 * 1000;

/// From now on no allocation gives freed memory back to the system; only `give_back` does. Otherwise, a second after a
/// gigabyte was freed, some allocation would wait until all of it is unmapped. Must be called before anything is freed:
/// the allocator gives back all freed memory at the end of the first delay that has begun.
pub fn keep_freed_memory() {
    // SAFETY: the function has no preconditions; the allocator reads its options each time it uses them.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NO_PURGE_MS) };
}

/// Gives freed memory back to the system. The system needs a millisecond for about twenty megabytes, so another thread
/// waits for it, if one can be started. With a limit on the address space the caller waits: another thread maps a stack
/// for its signal handlers once it runs, and ends the process if there is no room for it.
pub fn give_back() {
    // SAFETY: the function has no preconditions, and touches only free memory.
    let collect = |force| unsafe { libmimalloc_sys::mi_collect(force) };
    // This gives this thread's free memory to the allocator, which takes little time.
    collect(false);
    if platform::has_address_space_limit() {
        return collect(true);
    }
    let thread = thread::Builder::new().name("give-back".to_owned());
    let collect_beside = move || {
        super::hand_over::leave_signals_to_others();
        collect(true);
    };
    if thread.spawn(collect_beside).is_err() {
        collect(true);
    }
}

/// Touches memory on another thread, ahead of a thread that is about to fill a lot of it in ascending order. The system
/// needs a microsecond for the first touch of a page, about as long as that thread needs to fill the page. Ends when
/// dropped.
#[derive(Debug)]
pub struct TouchedAhead(Arc<AtomicUsize>);

/// Replaces the address when there is nothing more to touch.
const OVER: usize = usize::MAX;
/// Below this much memory, a thread does not pay off.
const MIN_TOUCHED_BYTES: usize = 16 << 20;
/// How many bytes one call touches.
const TOUCHED_AT_ONCE: usize = 1 << 20;
/// The thread touches at most the total divided by this number ahead. What is touched and not used in the end serves
/// later allocations.
const PARTS: usize = 64;
/// How long the thread sleeps when it is far enough ahead.
const PAUSE: Duration = Duration::from_micros(50);

impl TouchedAhead {
    /// Starts the thread if `bytes`, which the caller is about to fill, are at least `MIN_TOUCHED_BYTES`.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        let last = Arc::new(AtomicUsize::new(0));
        if bytes >= MIN_TOUCHED_BYTES {
            let of_thread = Arc::clone(&last);
            // If the thread cannot be started, the memory is touched only when it is filled.
            let thread = thread::Builder::new().name("touch-ahead".to_owned());
            drop(thread.spawn(move || touch_ahead(&of_thread, bytes / PARTS)));
        }
        Self(last)
    }

    /// The thread that fills the memory stores the address of its last piece here.
    #[must_use]
    pub fn last(&self) -> &AtomicUsize {
        &self.0
    }
}

impl Drop for TouchedAhead {
    fn drop(&mut self) {
        self.0.store(OVER, Ordering::Relaxed);
    }
}

/// Touches up to `ahead` bytes after the address in `last`, and follows it.
fn touch_ahead(last: &AtomicUsize, ahead: usize) {
    super::hand_over::leave_signals_to_others();
    let mut touched = 0..0;
    loop {
        let at = last.load(Ordering::Relaxed);
        if at == OVER {
            return;
        }
        if at != 0 && !(touched.start..=touched.end).contains(&at) {
            let start = at - at % TOUCHED_AT_ONCE;
            touched = start..start;
        }
        if at == 0 || touched.end >= at.saturating_add(ahead) {
            thread::sleep(PAUSE);
            continue;
        }
        if !platform::touch(touched.end, TOUCHED_AT_ONCE) {
            return;
        }
        touched.end += TOUCHED_AT_ONCE;
    }
}

/// An allocator with a reserve.
pub struct WithReserve<A> {
    allocator: A,
    pieces: [AtomicPtr<u8>; PIECES],
}

impl<A: GlobalAlloc> WithReserve<A> {
    /// An allocator whose reserve is still empty.
    pub const fn new(allocator: A) -> Self {
        Self { allocator, pieces: [const { AtomicPtr::new(ptr::null_mut()) }; PIECES] }
    }

    /// Fills the reserve; returns whether it is full. Its pages take address space but no memory.
    pub fn fill(&self) -> bool {
        for piece in &self.pieces {
            if !piece.load(Ordering::Relaxed).is_null() {
                continue;
            }
            // SAFETY: the size of the layout is not zero.
            let block = unsafe { self.allocator.alloc(PIECE) };
            if block.is_null() {
                // There is no memory for a full reserve, so its pieces are freed and can be used now.
                self.free_reserve();
                return false;
            }
            // The allocator may have taken huge pages or used pages for the piece.
            // SAFETY: the block has this size and whole pages, and no other code uses it yet.
            unsafe { platform::leave_untouched(block, PIECE.size()) };
            if piece.compare_exchange(ptr::null_mut(), block, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                // SAFETY: the block was allocated above, and no other code has it.
                unsafe { self.allocator.dealloc(block, PIECE) };
            }
        }
        EXHAUSTED.store(false, Ordering::Relaxed);
        true
    }

    /// Gives the reserve back to the allocator; returns whether there was one.
    fn free_reserve(&self) -> bool {
        EXHAUSTED.store(true, Ordering::Relaxed);
        let mut any = false;
        for piece in &self.pieces {
            let block = piece.swap(ptr::null_mut(), Ordering::Relaxed);
            if !block.is_null() {
                // SAFETY: `fill` allocated the block with this layout, and after the swap no other code has it.
                unsafe { self.allocator.dealloc(block, PIECE) };
                any = true;
            }
        }
        any
    }

    /// Returns `block`. If it is null, frees the reserve and returns the result of `again`.
    fn or_from_reserve(&self, block: *mut u8, size: usize, again: impl FnOnce() -> *mut u8) -> *mut u8 {
        if block.is_null() && size < MIN_LARGE_BYTES && self.free_reserve() { again() } else { block }
    }
}

// SAFETY: every call goes to the inner allocator with the caller's layout, and its block is returned; the second
// attempt is made only if the first returned null.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WithReserve<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are passed on; the same holds for the methods below.
        let alloc = || unsafe { self.allocator.alloc(layout) };
        self.or_from_reserve(alloc(), layout.size(), alloc)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { self.allocator.dealloc(block, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        let alloc = || unsafe { self.allocator.alloc_zeroed(layout) };
        self.or_from_reserve(alloc(), layout.size(), alloc)
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; a failed attempt leaves the old block as it was.
        let realloc = || unsafe { self.allocator.realloc(block, layout, new_size) };
        self.or_from_reserve(realloc(), new_size, realloc)
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// The system's allocator, with a limit.
    struct Limited {
        left: AtomicUsize,
    }

    // SAFETY: every block comes from the system's allocator, and goes back to it.
    unsafe impl GlobalAlloc for Limited {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let take = |left: usize| left.checked_sub(layout.size());
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return ptr::null_mut();
            }
            // SAFETY: the caller's guarantees are passed on.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.left.fetch_add(layout.size(), Ordering::Relaxed);
            // SAFETY: the caller's guarantees are passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[test]
    fn a_small_allocation_that_fails_uses_the_reserve_and_a_large_one_does_not() {
        let reserve = PIECES * PIECE.size();
        let allocator = WithReserve::new(Limited { left: AtomicUsize::new(reserve + (1 << 20)) });
        assert!(allocator.fill() && !is_exhausted());
        let large = Layout::from_size_align(MIN_LARGE_BYTES, 16).unwrap();
        let small = Layout::from_size_align(2 << 20, 16).unwrap();
        // SAFETY: the sizes are not zero, and each block is freed with the layout with which it was allocated.
        unsafe {
            assert!(allocator.alloc(large).is_null());
            assert!(!is_exhausted());
            let block = allocator.alloc(small);
            assert!(!block.is_null() && is_exhausted());
            assert!(!allocator.fill() && is_exhausted());
            allocator.dealloc(block, small);
        }
        assert!(allocator.fill() && !is_exhausted());
        allocator.free_reserve();
        assert_eq!(allocator.allocator.left.load(Ordering::Relaxed), reserve + (1 << 20));
    }
}
