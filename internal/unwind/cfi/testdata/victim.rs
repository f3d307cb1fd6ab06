// Threads, closures, unwinding panics and sorting.
// While a panic lands, libgcc has already overwritten its own saved registers:
// no unwinder can see through that instant, so panics are rare here.
use std::{hint::black_box, panic, thread};

fn recurse(n: u64) -> u64 {
    let pad = black_box([n; 8]);
    if n == 0 { pad[0] } else { recurse(n - 1) + pad[3] }
}

fn work() {
    for round in 0u64.. {
        let mut v: Vec<u64> = (0..200).map(|i| i * 7919 % 200).collect();
        v.sort_by(|a, b| (recurse(3) + a).cmp(&(recurse(3) + b)));
        let _ = black_box(panic::catch_unwind(|| {
            if recurse(5) > 1 && round % 200 == 0 {
                panic::resume_unwind(Box::new(1));
            }
        }));
        black_box(v);
    }
}

fn main() {
    let t = thread::spawn(work);
    work();
    t.join().unwrap();
}
