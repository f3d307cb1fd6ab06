<?php
// Stands still where dump_test.go expects it.
class Place {
    function wait($n) {
        if ($n > 0) {
            return $this->wait($n - 1);
        }
        echo "ready\n";
        sleep(1000);
    }
}

function outer() {
    array_map(fn($n) => (new Place)->wait($n), [3]);
}

outer();
