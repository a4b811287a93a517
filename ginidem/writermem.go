package ginidem

import (
	"net/http"
	"reflect"
	"unsafe"

	"github.com/gin-gonic/gin"
)

// own is the field of a gin.Context that is Gin's own writer, and below the field of that which is below.
var own, below = func() (own, below reflect.StructField) {
	own, ok := reflect.TypeFor[gin.Context]().FieldByName("writermem")
	if ok && own.Type.Kind() == reflect.Struct {
		below, _ = own.Type.FieldByName("ResponseWriter")
	}
	return own, below
}()

// ginsOwn returns Gin's own writer of c.
func ginsOwn(c *gin.Context) reflect.Value {
	return reflect.NewAt(own.Type, unsafe.Add(unsafe.Pointer(c), own.Offset))
}

// belowGin returns the place of what is below Gin's own writer of c, or nil if Gin no longer has it.
func belowGin(c *gin.Context) *http.ResponseWriter {
	if below.Type != reflect.TypeFor[http.ResponseWriter]() {
		return nil
	}
	return (*http.ResponseWriter)(unsafe.Add(unsafe.Pointer(c), own.Offset+below.Offset))
}
