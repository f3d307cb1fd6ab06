package auth

import (
	"net/http"

	"connectrpc.com/connect"
)

// Refusals answers those who are not let through in the words of the protocol
// that they spoke. told hears why.
func Refusals(told func(connect.Code)) func(http.ResponseWriter, *http.Request, int, error) {
	writer := connect.NewErrorWriter()
	codes := map[int]connect.Code{http.StatusUnauthorized: connect.CodeUnauthenticated, http.StatusForbidden: connect.CodePermissionDenied,
		http.StatusTooManyRequests: connect.CodeUnavailable} // what is asked too often may be asked again
	return func(w http.ResponseWriter, r *http.Request, status int, err error) {
		told(codes[status])
		if writer.IsSupported(r) {
			_ = writer.Write(w, r, connect.NewError(codes[status], err)) // whoever asked is gone if this fails
			return
		}
		http.Error(w, err.Error(), status)
	}
}
