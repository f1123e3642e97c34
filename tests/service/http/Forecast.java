import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Posts bodies to a URL, one after another, as a client that nobody has told anything does. */
class Forecast {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int number = 1; number < arguments.length; number++) {
            var request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(arguments[number]))
                .build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.body() + " " + answer.statusCode());
        }
    }
}
