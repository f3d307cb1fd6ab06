// Functions whose names are easily got wrong; see README.md.
use std::collections::HashMap;

mod shapes {
    #[inline(always)]
    fn innermost(x: u64) -> u64 {
        x.wrapping_mul(31) ^ (x >> 3)
    }

    #[inline(always)]
    fn middle(x: u64) -> u64 {
        (0..x).map(|i| innermost(i ^ x)).fold(0, u64::wrapping_add)
    }

    #[inline(never)]
    pub fn outer(x: u64) -> u64 {
        middle(x).wrapping_add(middle(x / 2))
    }

    pub trait Shape {
        fn area(&self) -> u64;
    }

    pub struct Square(pub u64);

    impl Shape for Square {
        #[inline(never)]
        fn area(&self) -> u64 {
            self.0 * self.0
        }
    }
}

use shapes::Shape;

fn main() {
    let mut count: HashMap<String, usize> = HashMap::new();
    for word in std::env::args() {
        *count.entry(word).or_insert(0) += 1;
    }
    let square = shapes::Square(count.len() as u64);
    let mut numbers: Vec<u64> = (0..square.area() * 10).map(shapes::outer).collect();
    numbers.sort_by(|a, b| b.cmp(a));
    println!("{:?} {}", numbers.first(), square.area());
}
