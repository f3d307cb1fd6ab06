// Package vacant finds addresses of this machine at which nobody answers, for servers that tests and benchmarks start.
//
//	Address   one with its port, such as 127.0.0.1:41234
//	Port      its port alone
//
// Whoever asks next may be told the same: take it soon.
package vacant

import "net"

// Address is one that nobody listened at a moment ago.
func Address() (string, error) {
	at, err := find()
	if err != nil {
		return "", err
	}
	return at.String(), nil
}

// Port is that of such an address.
func Port() (int, error) {
	at, err := find()
	if err != nil {
		return 0, err
	}
	return at.Port, nil
}

func find() (*net.TCPAddr, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return l.Addr().(*net.TCPAddr), l.Close()
}
