//! Rust: burns in methods behind trait objects and in closures; the log is victim.c's.
use std::arch::x86_64::_rdtsc;
use std::ffi::{c_char, c_double, c_int, CString};
use std::hint::black_box;

const MAX_SITES: usize = 16;

/// struct burner of victim.h.
#[repr(C)]
struct Burner {
    last: u64,
    due: u64,
    gap_ticks: u64,
    settle_ticks: u64,
    ticks_per_us: u64,
    ticks: [u64; MAX_SITES],
    gaps: [u64; MAX_SITES],
    longest: u64,
    longest_site: u64,
    random: u64,
    settled: [u64; 3],
}

extern "C" {
    fn victim_open(name: *const c_char, stacks: *const *const c_char, sites: c_int, seconds: c_double);
    fn victim_enter(b: *mut Burner, seed: u64);
    fn victim_settle(b: *mut Burner);
    fn victim_done() -> c_int;
    fn victim_close();
}

impl Burner {
    #[inline(always)]
    fn step(&mut self, site: usize, from: u64, to: u64) {
        if to - from > self.gap_ticks {
            self.gaps[site] += to - from;
            if to - from > self.longest {
                self.longest = to - from;
                self.longest_site = site as u64;
            }
        }
    }

    /// burn() of victim.h.
    #[inline(always)]
    fn burn(&mut self, site: usize, salt: u64) {
        let ticks = self.ticks_per_us * 5 + self.draw() % (self.ticks_per_us * 50);
        let from = unsafe { _rdtsc() };
        self.ticks[0] += from - self.last;
        self.step(0, self.last, from);
        let (mut last, mut x) = (from, salt);
        while last - from < ticks {
            for _ in 0..40 {
                x = black_box(x.wrapping_mul(6364136223846793005).wrapping_add(salt));
            }
            let now = unsafe { _rdtsc() };
            self.step(site, last, now);
            last = now;
        }
        self.ticks[site] += last - from;
        self.last = last;
    }

    #[inline(always)]
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(2685821657736338717) >> 11
    }
}

trait Shape {
    fn area(&self, b: &mut Burner);
}

struct Circle;
struct Square;

impl Shape for Circle {
    #[inline(never)]
    fn area(&self, b: &mut Burner) {
        b.burn(1, 11);
    }
}

impl Shape for Square {
    #[inline(never)]
    fn area(&self, b: &mut Burner) {
        b.burn(2, 13);
        diagonal(b);
    }
}

#[inline(never)]
fn diagonal(b: &mut Burner) {
    b.burn(3, 17);
}

#[inline(never)]
fn generic<T: Copy>(b: &mut Burner, value: T) {
    b.burn(4, 19);
    black_box(value);
}

#[inline(never)]
fn run(b: &mut Burner) {
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Circle), Box::new(Square)];
    while unsafe { victim_done() } == 0 {
        for _ in 0..100 {
            match b.draw() % 4 {
                0 => generic(b, 1u8),
                n => shapes[(n % 2) as usize].area(b),
            }
            if b.longest > b.settle_ticks || b.last >= b.due {
                unsafe { victim_settle(b) };
            }
        }
    }
    unsafe { victim_settle(b) };
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(10.0);
    let root = "rusty::main;rusty::run";
    let circle = "<rusty::Circle as rusty::Shape>::area";
    let square = "<rusty::Square as rusty::Shape>::area";
    let stacks: Vec<CString> = [
        String::new(),
        format!("{root};{circle}"),
        format!("{root};{square}"),
        format!("{root};{square};rusty::diagonal"),
        format!("{root};rusty::generic"),
    ]
    .into_iter()
    .map(|s| CString::new(s).expect("no NUL in a name"))
    .collect();
    let pointers: Vec<*const c_char> = stacks.iter().map(|s| s.as_ptr()).collect();
    let mut b: Burner = unsafe { std::mem::zeroed() };
    unsafe {
        victim_open(c"rusty".as_ptr(), pointers.as_ptr(), pointers.len() as c_int, seconds);
        victim_enter(&mut b, 1);
    }
    run(&mut b);
    unsafe { victim_close() };
}
