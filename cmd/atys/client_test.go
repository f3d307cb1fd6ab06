package main

import "testing"

func TestWithScheme(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:4300": "http://127.0.0.1:4300", "127.8.0.1:4300": "http://127.8.0.1:4300", "localhost:4300": "http://localhost:4300", "localhost": "http://localhost",
		"[::1]:4300": "http://[::1]:4300", "[::1]": "http://[::1]", "127.0.0.1:4300/": "http://127.0.0.1:4300/",
		"10.0.0.5:4300": "https://10.0.0.5:4300", "10.0.0.5": "https://10.0.0.5", "atys.example.com": "https://atys.example.com", "atys:4300": "https://atys:4300",
		"atys.example.com:4300/below": "https://atys.example.com:4300/below", "[2001:db8::1]:4300": "https://[2001:db8::1]:4300", "localhost.example.com:1": "https://localhost.example.com:1",
		"http://10.0.0.5:4300": "http://10.0.0.5:4300", "https://localhost": "https://localhost", "ftp://x": "ftp://x",
		"": "", "foo": "foo", ":4300": ":4300", "a b:1": "a b:1", "[::1": "[::1",
	} {
		if got := withScheme(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
