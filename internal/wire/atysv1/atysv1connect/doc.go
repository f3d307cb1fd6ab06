// Package atysv1connect holds the services of atys.proto, generated.
package atysv1connect
