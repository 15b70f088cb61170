// A program for a host: `server` echoes connections of port 7301 in a thread each and those of 7302
// by a selector; `client ADDRESS ADDRESS` talks to both, blocking and by a selector, and prints what
// came back.

import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public final class Echo {
  static final int CONNECTIONS = 4;
  static final int MESSAGES = 150;
  static final int BULK = 4_000_000;

  static int sizeOf(int number) {
    return 1 + (number * 7919) % 20011;
  }

  static byte[] content(int seed, int size) {
    byte[] bytes = new byte[size];
    new Random(seed).nextBytes(bytes);
    return bytes;
  }

  static String hex(MessageDigest digest) {
    return HexFormat.of().formatHex(digest.digest());
  }

  static void check(boolean isRight, String what) {
    if (!isRight) throw new IllegalStateException(what + " came back wrong");
  }

  static void echo(Socket socket) {
    try (socket) {
      byte[] buffer = new byte[50_000];
      InputStream in = socket.getInputStream();
      OutputStream out = socket.getOutputStream();
      for (int size; (size = in.read(buffer)) >= 0;) out.write(buffer, 0, size);
    } catch (Exception error) {
      error.printStackTrace();
    }
  }

  static void serveBlocking(ServerSocket listener) throws Exception {
    for (;;) {
      Socket socket = listener.accept();
      Thread thread = new Thread(() -> echo(socket));
      thread.setDaemon(true);
      thread.start();
    }
  }

  static void accept(ServerSocketChannel listener, Selector selector) throws Exception {
    SocketChannel channel = listener.accept();
    if (channel == null) return;
    channel.configureBlocking(false);
    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(50_000));
  }

  /** Reads while there is nothing left to write, and writes until then. */
  static void turn(SelectionKey key) throws Exception {
    SocketChannel channel = (SocketChannel) key.channel();
    ByteBuffer buffer = (ByteBuffer) key.attachment();
    if (key.isReadable()) {
      buffer.clear();
      if (channel.read(buffer) < 0) {
        channel.close();
        return;
      }
      buffer.flip();
    }
    channel.write(buffer);
    key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
  }

  static void serveSelector(ServerSocketChannel listener) throws Exception {
    Selector selector = Selector.open();
    listener.configureBlocking(false);
    listener.register(selector, SelectionKey.OP_ACCEPT);
    for (;;) {
      selector.select();
      for (SelectionKey key : selector.selectedKeys()) {
        if (key.isAcceptable()) accept(listener, selector);
        else turn(key);
      }
      selector.selectedKeys().clear();
    }
  }

  static void serve() throws Exception {
    ServerSocket blocking = new ServerSocket(7301);
    ServerSocketChannel selected = ServerSocketChannel.open().bind(new InetSocketAddress(7302));
    Thread thread = new Thread(() -> {
      try {
        serveBlocking(blocking);
      } catch (Exception error) {
        error.printStackTrace();
      }
    });
    thread.setDaemon(true);
    thread.start();
    System.out.println("ready");
    serveSelector(selected);
  }

  /** Messages there and back one after the other, then both ways at once, then half a close. */
  static String askBlocking(String address, int port, int number) throws Exception {
    MessageDigest echoed = MessageDigest.getInstance("SHA-256");
    try (Socket socket = new Socket(address, port)) {
      socket.setTcpNoDelay(true);
      socket.setSoTimeout(15_000);
      InputStream in = socket.getInputStream();
      OutputStream out = socket.getOutputStream();
      for (int message = 0; message < MESSAGES; message++) {
        byte[] sent = content(number * MESSAGES + message, sizeOf(message));
        out.write(sent);
        byte[] back = in.readNBytes(sent.length);
        check(Arrays.equals(sent, back), "message " + message);
        echoed.update(back);
      }
      byte[] bulk = content(number, BULK);
      Thread sender = new Thread(() -> {
        try {
          out.write(bulk);
          socket.shutdownOutput();
        } catch (Exception error) {
          error.printStackTrace();
        }
      });
      sender.start();
      byte[] back = in.readAllBytes();
      sender.join();
      check(Arrays.equals(bulk, back), "bulk");
      echoed.update(back);
    }
    return hex(echoed);
  }

  /** One end of a conversation that a selector drives. */
  static final class Talk {
    final int number;
    final MessageDigest echoed;
    final ByteBuffer in = ByteBuffer.allocateDirect(65536);
    byte[] sent;
    ByteBuffer out;
    int message = -1;
    int came;
    boolean isOver;

    Talk(int number) throws Exception {
      this.number = number;
      this.echoed = MessageDigest.getInstance("SHA-256");
      next();
    }

    void next() {
      message++;
      came = 0;
      sent = message < MESSAGES ? content(number * MESSAGES + message, sizeOf(message)) : content(number, BULK);
      out = ByteBuffer.wrap(sent);
    }

    void turn(SelectionKey key) throws Exception {
      SocketChannel channel = (SocketChannel) key.channel();
      if (key.isConnectable()) channel.finishConnect();
      if (key.isReadable()) {
        in.clear();
        int size = channel.read(in);
        in.flip();
        if (size < 0) {
          check(message == MESSAGES && came == BULK, "the end");
          isOver = true;
          channel.close();
          return;
        }
        byte[] bytes = new byte[size];
        in.get(bytes);
        check(Arrays.equals(bytes, 0, size, sent, came, came + size), "message " + message);
        echoed.update(bytes);
        came += size;
        if (came == sent.length && message < MESSAGES) next();
      }
      if (out.hasRemaining()) {
        channel.write(out);
        if (!out.hasRemaining() && message == MESSAGES) channel.shutdownOutput();
      }
      key.interestOps(SelectionKey.OP_READ | (out.hasRemaining() ? SelectionKey.OP_WRITE : 0));
    }
  }

  static List<String> allSelector(String address, int port) throws Exception {
    Selector selector = Selector.open();
    List<Talk> talks = new ArrayList<>();
    for (int number = 0; number < CONNECTIONS; number++) {
      SocketChannel channel = SocketChannel.open();
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.configureBlocking(false);
      Talk talk = new Talk(number);
      talks.add(talk);
      channel.connect(new InetSocketAddress(address, port));
      channel.register(selector, SelectionKey.OP_CONNECT, talk);
    }
    while (talks.stream().anyMatch(talk -> !talk.isOver)) {
      selector.select(key -> {
        try {
          ((Talk) key.attachment()).turn(key);
        } catch (Exception error) {
          throw new IllegalStateException(error);
        }
      }, 15_000);
    }
    List<String> answers = new ArrayList<>();
    for (Talk talk : talks) answers.add(hex(talk.echoed));
    return answers;
  }

  static List<String> allBlocking(String address, int port) throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(CONNECTIONS);
    List<Callable<String>> asks = new ArrayList<>();
    for (int number = 0; number < CONNECTIONS; number++) {
      int own = number;
      asks.add(() -> askBlocking(address, port, own));
    }
    List<String> answers = new ArrayList<>();
    for (Future<String> answer : threads.invokeAll(asks)) answers.add(answer.get());
    threads.shutdown();
    return answers;
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("server")) {
      serve();
      return;
    }
    for (int server = 0; server < 2; server++) {
      int port = 7301 + server;
      System.out.println("blocking: " + String.join(" ", allBlocking(args[1 + server], port)));
      System.out.println("selector: " + String.join(" ", allSelector(args[1 + server], port)));
    }
  }
}
