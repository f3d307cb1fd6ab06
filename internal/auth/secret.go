package auth

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// ReadSecret reads a token from a file that nobody but its owner may read.
func ReadSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("others may read the token in %q (%v): chmod 600 it", path, info.Mode().Perm())
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
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return err
	}
	_, err = file.WriteString(token + "\n")
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// Bearer sends a token along with each request to one host.
type Bearer struct {
	Token func() (string, error) // as it is now; "": none
	Host  string                 // as in addresses: name:port; no other is told
	Next  http.RoundTripper
}

// RoundTrip sends a request; see http.RoundTripper.
func (b *Bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != b.Host {
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
