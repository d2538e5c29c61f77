//! What happens when the system has no memory left.
//!
//! Owns: the reserve, and the wrapper of the allocator that breaks into it. An allocation that a client
//! has chosen the size of is made where failing is allowed for, and is answered OUT_OF_MEMORY. The many
//! small ones of the structures around it cannot be undone half-way; for them there is the reserve: it is
//! let go when one of them fails, and from then on the server takes on nothing new until it is filled again.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Pieces of the reserve: small enough that the allocator finds room for them among other blocks.
const PIECES: usize = 32;
/// The size of a piece. All together outlast a turn at its busiest by far.
const PIECE: Layout = match Layout::from_size_align(1 << 20, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!("a page is a valid alignment"),
};
/// From this size on an allocation is not worth the reserve: it would not fit, and whoever asks for so much
/// is ready for a refusal.
const LARGE_BYTES: usize = 8 << 20;

/// Whether the reserve is gone.
static EXHAUSTED: AtomicBool = AtomicBool::new(false);

/// Whether the server lives on its reserve, and should take on nothing new.
#[must_use]
pub fn is_exhausted() -> bool {
    EXHAUSTED.load(Ordering::Relaxed)
}

/// Gives freed memory back to the system, which the allocator does by itself only while it is called for
/// more. Takes as long as the system needs to unmap what was freed.
pub fn give_back() {
    // SAFETY: the function has no preconditions, and touches free memory alone.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

/// An allocator with a reserve.
pub struct WithReserve<A> {
    allocator: A,
    pieces: [AtomicPtr<u8>; PIECES],
}

impl<A: GlobalAlloc> WithReserve<A> {
    /// An allocator whose reserve is empty as yet.
    pub const fn new(allocator: A) -> Self {
        Self { allocator, pieces: [const { AtomicPtr::new(ptr::null_mut()) }; PIECES] }
    }

    /// Fills the reserve up; tells whether it is full. Its pages take address space and no memory.
    pub fn fill(&self) -> bool {
        for piece in &self.pieces {
            if !piece.load(Ordering::Relaxed).is_null() {
                continue;
            }
            // SAFETY: the layout is not of size zero.
            let block = unsafe { self.allocator.alloc(PIECE) };
            if block.is_null() {
                // What there was of it is of more use now.
                self.let_go();
                return false;
            }
            leave_untouched(block);
            if piece.compare_exchange(ptr::null_mut(), block, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                // SAFETY: the block was allocated above, and nobody else has it.
                unsafe { self.allocator.dealloc(block, PIECE) };
            }
        }
        EXHAUSTED.store(false, Ordering::Relaxed);
        true
    }

    /// Gives the reserve back to the allocator; tells whether there was any.
    fn let_go(&self) -> bool {
        EXHAUSTED.store(true, Ordering::Relaxed);
        let mut any = false;
        for piece in &self.pieces {
            let block = piece.swap(ptr::null_mut(), Ordering::Relaxed);
            if !block.is_null() {
                // SAFETY: `fill` allocated the block with this layout, and the swap made it ours alone.
                unsafe { self.allocator.dealloc(block, PIECE) };
                any = true;
            }
        }
        any
    }

    /// `block`, or where that is null what `again` yields once the reserve is gone.
    fn or_from_reserve(&self, block: *mut u8, size: usize, again: impl FnOnce() -> *mut u8) -> *mut u8 {
        if block.is_null() && size < LARGE_BYTES && self.let_go() { again() } else { block }
    }
}

/// Takes the memory from under a new piece, which the allocator may have made of huge pages or of used ones.
fn leave_untouched(block: *mut u8) {
    #[cfg(target_os = "linux")]
    for advice in [libc::MADV_NOHUGEPAGE, libc::MADV_DONTNEED] {
        // SAFETY: the block is whole pages, belongs to the caller, and holds nothing yet. Where the system does
        // not take the advice nothing is lost.
        unsafe { libc::madvise(block.cast(), PIECE.size(), advice) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = block;
}

// SAFETY: every call goes to the allocator within with the layout that came in, and its block is passed
// on; a second attempt is made only where the first yielded nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for WithReserve<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on; so in the methods below.
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

    /// The system's allocator, with an end.
    struct Limited {
        left: AtomicUsize,
    }

    // SAFETY: whatever is given out comes from the system's allocator, and goes back there.
    unsafe impl GlobalAlloc for Limited {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let take = |left: usize| left.checked_sub(layout.size());
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
                return ptr::null_mut();
            }
            // SAFETY: as the caller's.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.left.fetch_add(layout.size(), Ordering::Relaxed);
            // SAFETY: as the caller's.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[test]
    fn a_small_allocation_that_fails_breaks_into_the_reserve_and_a_large_one_does_not() {
        let reserve = PIECES * PIECE.size();
        let allocator = WithReserve::new(Limited { left: AtomicUsize::new(reserve + (1 << 20)) });
        assert!(allocator.fill() && !is_exhausted());
        let large = Layout::from_size_align(LARGE_BYTES, 16).unwrap();
        let small = Layout::from_size_align(2 << 20, 16).unwrap();
        // SAFETY: the sizes are not zero, and what comes goes back with the layout that it came with.
        unsafe {
            assert!(allocator.alloc(large).is_null());
            assert!(!is_exhausted());
            let block = allocator.alloc(small);
            assert!(!block.is_null() && is_exhausted());
            assert!(!allocator.fill() && is_exhausted());
            allocator.dealloc(block, small);
        }
        assert!(allocator.fill() && !is_exhausted());
        allocator.let_go();
        assert_eq!(allocator.allocator.left.load(Ordering::Relaxed), reserve + (1 << 20));
    }
}
