// Command boot boots a Debian kernel and runs the commands it is given in
// it: package kernels by hand.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"atys.dev/atys/test/kernels"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "boot: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	vm := kernels.VM{Files: map[string]string{}}
	series := flag.String("series", "6.1", "kernel `series` to fetch")
	flag.Func("f", "`path=file`: a file of this host and its path in the machine (repeatable)", func(s string) error {
		to, from, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("want path=file")
		}
		vm.Files[to] = from
		return nil
	})
	flag.IntVar(&vm.CPUs, "cpus", 0, "`number` of CPUs (default 2)")
	flag.IntVar(&vm.Memory, "memory", 0, "`MiB` of memory (default 1024)")
	flag.DurationVar(&vm.CommandTimeout, "timeout", 0, "`time` for one command (default 1m)")
	console := flag.Bool("console", false, "show the kernel's console on standard error")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: boot [flags] 'command' ...\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	vm.Commands = flag.Args()
	if len(vm.Commands) == 0 {
		return fmt.Errorf("no command given; try: boot 'uname' 'probe'")
	}
	if *console {
		vm.Console = os.Stderr
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if vm.Kernel, err = kernels.Fetch(ctx, *series, ""); err != nil {
		return err
	}
	begin := time.Now()
	results, err := kernels.Run(ctx, vm)
	show(results)
	fmt.Fprintf(os.Stderr, "%s: %d commands, %v in all\n",
		vm.Kernel.Release, len(results), time.Since(begin).Round(time.Millisecond))
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Exit != 0 {
			return r.Err()
		}
	}
	return nil
}

func show(results []kernels.Result) {
	for _, r := range results {
		fmt.Fprintf(os.Stderr, "--- %s (%s, %v)\n", r.Command, r.Status, r.Duration.Round(time.Millisecond))
		os.Stderr.Write(r.Stderr)
		os.Stdout.Write(r.Stdout)
	}
}
