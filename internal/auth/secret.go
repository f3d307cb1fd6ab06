package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// ReadSecret reads a token from a file that nobody but its owner may read.
func ReadSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	return readSecret(file)
}

func readSecret(file *os.File) (string, error) {
	path := file.Name()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("others may read the token in %q (%v): chmod 600 it", path, info.Mode().Perm())
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 && int(owner) != os.Geteuid() {
		return "", fmt.Errorf("the token in %q is of user %d, who may have chosen it: chown it", path, owner)
	}
	const most = 4096
	buffer := make([]byte, most)
	n, err := file.Read(buffer)
	token := strings.TrimSpace(string(buffer[:n]))
	if n == 0 && err != nil || token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%q holds no token: want one, on one line", path)
	}
	return token, nil
}

// KeepSecret reads the token in a file, or makes one where there is none.
func KeepSecret(path string) (string, error) {
	token, err := ReadSecret(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token = NewToken()
	return token, WriteSecret(path, token)
}

// WriteSecret puts a token into a file that only its owner may read: all of it,
// or nothing.
func WriteSecret(path, token string) error {
	file, err := writeSecret(path, token)
	if err != nil {
		return err
	}
	return file.Close()
}

// HoldSecret is WriteSecret for as long as whoever takes the token is there: it
// holds the file until leave is called, or the process is killed. A killed process leaves the
// file behind, and somebody else may listen at its address: the next call for the same folder
// removes the file.
func HoldSecret(path, token string) (leave func(), err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Files of others that are just being written are not locked yet.
	alone, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer alone.Close()
	if err := syscall.Flock(int(alone.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	if err := sweepSecrets(dir); err != nil {
		return nil, err
	}
	file, err := writeSecret(path, token)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(path) // one that nobody holds is not believed either
		_ = file.Close()
	}, nil
}

// swept matches the names of files that HoldSecret writes: a token for a server's address, and
// the temporary name of one that is being written.
var swept = regexp.MustCompile(`^([0-9a-f.-]+_[0-9]+\.token|\.token-[0-9]+)$`)

// sweepSecrets removes the token files that servers left behind when they were killed: nobody
// holds a lock on them.
func sweepSecrets(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !swept.MatchString(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0); err == nil { // or it is gone, or somebody else's
			if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
				_ = os.Remove(path) // one that stays is never used: ReadHeldSecret wants it held
			}
			_ = file.Close()
		}
	}
	return nil
}

// ReadHeldSecret is ReadSecret of a file that somebody holds.
func ReadHeldSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() // it ends our own lock, too
	switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK): // it is held
	case err != nil:
		return "", fmt.Errorf("see whether %q is held: %w", path, err)
	default:
		return "", fmt.Errorf("whoever wrote %q is not there any more", path)
	}
	return readSecret(file)
}

// writeSecret gives the file locked, and under its name only then: nobody finds
// one that is not.
func writeSecret(path, token string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(token + "\n")
	if err = errors.Join(err, syscall.Flock(int(file.Fd()), syscall.LOCK_EX), file.Sync()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// Bearer sends a token along with each request to one server, and to no other:
// who is to be asked by https is not told by http.
type Bearer struct {
	Token  func() (string, error) // as it is now; "": none
	Scheme string                 // http or https
	Host   string                 // as in addresses: name:port
	Next   http.RoundTripper
}

// RoundTrip sends a request; see http.RoundTripper.
func (b *Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != b.Scheme || r.URL.Host != b.Host {
		return b.Next.RoundTrip(r)
	}
	token, err := b.Token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.Next.RoundTrip(r)
}
