// Command ids is one instance of a service that has a library make random ids: so many for each request, which come at random moments.
//
//	ids NUMBER RATE SEED   until it is ended
//
// Requests follow each other at exponential intervals, as a Poisson process has
// them. The function that answers is one of two, which differ by how often they
// call math/rand/v2.(*ChaCha8).Read: little is sampled in themselves.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "ids NUMBER RATE SEED")
		os.Exit(2)
	}
	number, err := strconv.Atoi(os.Args[1])
	rate, wrong := strconv.ParseFloat(os.Args[2], 64)
	seed, badly := strconv.ParseUint(os.Args[3], 10, 64)
	if err != nil || wrong != nil || badly != nil || rate <= 0 {
		fmt.Fprintln(os.Stderr, "ids NUMBER RATE SEED: want numbers")
		os.Exit(2)
	}
	answer := makeFew
	if number > 100 {
		answer = makeMany
	}
	serve(answer, rate, rand.New(rand.NewPCG(seed, 1)))
}

// behind is how late requests may be answered: on a machine that is too slow for
// their rate, those that come later are not.
const behind = time.Second

//go:noinline
func serve(answer func(*rand.ChaCha8) byte, rate float64, r *rand.Rand) {
	source := rand.NewChaCha8([32]byte{7})
	sum := uint64(0)
	for next := time.Now(); ; {
		next = next.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second)))
		if time.Since(next) > behind {
			next = time.Now()
		}
		time.Sleep(time.Until(next))
		sum += render() + uint64(answer(source))
	}
}

//go:noinline
func makeFew(source *rand.ChaCha8) (last byte) {
	var id [512]byte
	for range 100 {
		_, _ = source.Read(id[:]) // it never fails
		last ^= id[0]
	}
	return last
}

//go:noinline
func makeMany(source *rand.ChaCha8) (last byte) {
	var id [512]byte
	for range 300 {
		_, _ = source.Read(id[:]) // it never fails
		last ^= id[0]
	}
	return last
}

// render is what a request takes besides ids, whoever answers it.
//
//go:noinline
func render() uint64 {
	hash := uint64(14695981039346656037)
	for i := range uint64(60_000) {
		hash = (hash ^ i&0xff) * 1099511628211
	}
	return hash
}
