package ginidem_test

import (
	"io"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"
	"github.com/stretchr/testify/assert"

	"github.com/idem-go/idem/ginidem"
	"github.com/idem-go/idem/sign/signtest"
)

// router matches paths as they were sent.
func router() *gin.Engine {
	e := gin.New()
	e.UseRawPath = true
	return e
}

const form = "--b\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\nA-1\r\n--b--\r\n"

func TestRefusalsAbort(t *testing.T) {
	reached, after := 0, 0
	e := router()
	e.Use(func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		c.Next()
		after++
		assert.Same(t, request, c.Request)
		assert.Equal(t, writer, c.Writer)
		assert.Equal(t, 401, c.Writer.Status())
		assert.True(t, c.IsAborted())
		assert.Empty(t, c.Errors)
		c.JSON(500, nil) // too late
	})
	e.POST("/orders/:id", ginidem.Verify(signtest.NewVerifier()), func(*gin.Context) { reached++ })
	w := signtest.Serve(t, e, signtest.Forger, "{}")
	assert.Equal(t, 401, w.Code)
	assert.Contains(t, w.Body.String(), `"code":"invalid"`)
	assert.Zero(t, reached)
	assert.Equal(t, 1, after)
}

// A signer's request is what the middleware in front finds again.
func TestRequestIsRestored(t *testing.T) {
	e := router()
	e.Use(func(c *gin.Context) {
		request := c.Request
		defer func() {
			assert.NotNil(t, recover())
			assert.Same(t, request, c.Request)
			assert.NotNil(t, request.MultipartForm, "net/http removes the files")
			_, ok := ginidem.Verified(c)
			assert.False(t, ok)
			c.Status(500)
		}()
		c.Next()
	})
	e.POST("/orders/:id", ginidem.Verify(signtest.NewVerifier()), func(c *gin.Context) {
		assert.Equal(t, "a/b", c.Param("id"))
		again, err := c.Request.GetBody()
		assert.NoError(t, err)
		b, _ := io.ReadAll(again)
		assert.Equal(t, form, string(b))
		assert.NoError(t, c.Request.ParseMultipartForm(1))
		panic("boom")
	})
	assert.Equal(t, 500, signtest.Serve(t, e, signtest.Demo, form, "Content-Type", "multipart/form-data; boundary=b").Code)
}

// ShouldBindBodyWith keeps what it has read beside the request. What somebody in front has read there is not
// the body that was verified.
func TestABodyThatGinHasKept(t *testing.T) {
	var got struct {
		Amount int `json:"amount"`
	}
	e := gin.New()
	e.POST("/orders/:id", func(c *gin.Context) {
		c.Set(gin.BodyBytesKey, []byte(`{"amount":500}`))
	}, ginidem.Verify(signtest.NewVerifier()), func(c *gin.Context) {
		assert.NoError(t, c.ShouldBindBodyWith(&got, binding.JSON))
	})
	e.UseRawPath = true
	w := signtest.Serve(t, e, signtest.Demo, `{"amount":5}`)
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, 5, got.Amount)
}
