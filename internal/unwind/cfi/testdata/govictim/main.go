// Command govictim keeps the Go runtime busy in every way that switches stacks:
// allocation and collection, channels, timers, maps, growing stacks, clocks.
package main

import (
	"runtime"
	"sort"
	"strconv"
	"time"
)

var sink any

func grow(n int) int {
	var pad [256]byte
	if n == 0 {
		return int(pad[n])
	}
	return grow(n-1) + int(pad[n%256]) + 1
}

func allocate(n int) {
	m := map[string][]int{}
	for i := range n {
		m[strconv.Itoa(i)] = make([]int, i%100)
	}
	sink = m
}

func sortSome(n int) {
	s := make([]int, n)
	for i := range s {
		s[i] = i * 7919 % n
	}
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	sink = s
}

func main() {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v
		}
	}()
	go func() {
		for {
			allocate(1000)
			runtime.Gosched()
		}
	}()
	go func() {
		for {
			time.Sleep(100 * time.Microsecond)
			sink = time.Now()
		}
	}()
	for {
		done := make(chan int)
		go func() { done <- grow(200) }()
		sortSome(1000)
		for i := range 100 {
			ping <- i
			<-pong
			sink = time.Now()
		}
		<-done
	}
}
