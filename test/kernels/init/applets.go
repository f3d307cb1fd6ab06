package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// applets are the programs init is under other names. The links are made by
// package kernels, which lists the same names.
func applets() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"cat":   cat,
		"ls":    ls,
		"mkdir": mkdir,
		"probe": probe,
		"sleep": sleep,
		"spin":  spin,
		"true":  func([]string) error { return nil },
		"uname": uname,
		"write": write,
	}
}

func cat(paths []string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func ls(dirs []string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			fmt.Println(e.Name())
		}
	}
	return nil
}

func mkdir(dirs []string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// write puts a text into a file of /proc, /sys or a cgroup.
func write(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want two arguments: a file and a text")
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(args[1])
	return errors.Join(err, f.Close())
}

func seconds(args []string) (time.Duration, error) {
	if len(args) != 1 {
		return 0, fmt.Errorf("want one argument: seconds")
	}
	s, err := strconv.ParseFloat(args[0], 64)
	if err != nil || !(s >= 0 && s < 1e6) {
		return 0, fmt.Errorf("seconds %q: want a number from 0 to a million", args[0])
	}
	return time.Duration(s * float64(time.Second)), nil
}

func sleep(args []string) error {
	d, err := seconds(args)
	if err != nil {
		return err
	}
	time.Sleep(d)
	return nil
}

// spin is a victim that is always there: it burns CPU for some seconds.
func spin(args []string) error {
	d, err := seconds(args)
	if err != nil {
		return err
	}
	burn(d)
	return nil
}

func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func uname([]string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	fmt.Println(unix.ByteSliceToString(u.Release[:]))
	return nil
}
