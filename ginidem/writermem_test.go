package ginidem

import (
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
)

func TestGinsOwnWriterIsFound(t *testing.T) {
	w := httptest.NewRecorder()
	c, _ := gin.CreateTestContext(w)
	require.Same(t, c.Writer, ginsOwn(c).Interface())
	require.NotNil(t, belowGin(c))
	require.Same(t, w, *belowGin(c))
}
